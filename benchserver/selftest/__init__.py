"""The self-test: the bench against the embedded server with every fault, to prove each check.

`cases` says which runs there are and what must come of them, `runs` makes them, `judge` compares,
`table` shows.  Every run is a real bench process against a real server process.
"""
