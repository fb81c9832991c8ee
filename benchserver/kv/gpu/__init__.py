"""KV memory of a GPU: the pool, its kernels, and what a server needs to map it."""
