"""L1: the index of chunk objects, the memory they lie in, and the hashes that name them."""
