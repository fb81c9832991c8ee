"""`fs://`: an object is a file."""
