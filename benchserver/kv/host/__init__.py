"""KV memory of the host: a shared segment, and the pool in it."""
