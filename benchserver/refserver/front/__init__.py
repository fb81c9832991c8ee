"""What clients reach: the ROUTER socket and the HTTP API."""
