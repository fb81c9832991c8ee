"""Clients whose KV tensors lie in shared memory of the host."""
