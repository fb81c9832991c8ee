"""Whether two sides of runs differ: read from their JSON reports; nothing is started."""
