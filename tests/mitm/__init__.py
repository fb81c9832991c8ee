"""A man in the middle between a bench and an MP server, and the faults that it commits."""
