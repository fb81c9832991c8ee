"""Numbers about a run, in bounded memory."""
