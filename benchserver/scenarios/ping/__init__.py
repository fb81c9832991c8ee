"""Ping: round trips that need no memory and no registration."""
