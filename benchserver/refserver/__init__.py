"""The embedded reference MP cache server: one process, one event loop.

For newcomers and self-tests; it is not evidence about LMCache.  It speaks the wire of one release
(`protocol`), keeps chunk objects in one arena of memory, and serves the HTTP API that a bench
needs.  `server.serve` starts it and leaves nothing behind.

All state (`core.Core`) belongs to the event loop.  Only the copying of bytes runs in threads, on
memory that is pinned for the duration, so it needs no lock.

Clients whose KV lies on a GPU are served where there are torch and a device (`gpu`); what their
threads share, streams and mapped memory, has locks of its own.
"""
