"""What is known of a run while it runs."""
