"""A run that goes on as metrics for Prometheus."""
