"""GPU clients: mapped memory, streams and copies.  torch is imported inside functions alone."""
