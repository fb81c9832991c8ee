"""Whether a hit in the cache beats computing it again: a model, its table and its plot."""
