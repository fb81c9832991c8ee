"""Many loads in one table: cells of a matrix, a child process each, resumed where it ended."""
