"""The runs of the self-test, and what must come of each, by what they spoil: data."""
