"""The command line: click only; parse, build a config, call, set the exit code."""
