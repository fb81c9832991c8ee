"""Paged KV memory: content that proves itself, the pools that hold it, and verification."""
