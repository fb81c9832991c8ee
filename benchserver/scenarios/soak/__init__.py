"""The soak: the baseline for as long as somebody lets it run, and whether anything grows."""
