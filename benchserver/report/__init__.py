"""Reports: text while the run goes on and at its end, JSON and JUnit files."""
