"""The handlers of operations; they know the core."""
