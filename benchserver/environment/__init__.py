"""What a run ran on and with: the machine, its limits, the software, and what all that used.

Read from the kernel and from packages, each read bounded in size and time.  What cannot be read is
said to be unknown, and ends no run.
"""
