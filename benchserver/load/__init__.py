"""What to ask and when: pure functions."""
