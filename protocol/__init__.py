"""The MP wire protocol of LMCache's multiprocess cache server, sans-IO.

Bytes in, events out; messages in, bytes out.  No clock, socket, event loop, tensor or logger.
"""
