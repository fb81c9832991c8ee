"""Judgements: each check takes the history of a sequence, or of the run, and returns findings.

A check sees records, never a socket.  Missing evidence is `unknown`, and unknown does not pass.
"""
