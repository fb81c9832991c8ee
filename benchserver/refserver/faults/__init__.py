"""Fault switches: named ways in which the embedded server lies, so that checks can prove they fail.

`parser` reads a switch (`name[:args][@when]`), `table` says what each name means and where it
hooks, `board` installs the switched-on ones and takes them out again while the server runs.  With
none switched on, nothing of this lies between a request and its handler.
"""
