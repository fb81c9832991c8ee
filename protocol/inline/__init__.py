"""The inline tensor list: how KV chunks travel when there is no shared memory."""
