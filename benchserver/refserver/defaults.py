"""Defaults of the embedded server, those of the real one (0.5.6) where it has the option.

Imports nothing of ours: `--help` shows them.
"""

from __future__ import annotations

DEFAULT_RELEASE = "0.5.6"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_CHUNK_TOKENS = 256
DEFAULT_WORKER_REAP_TIMEOUT_S = 120.0
DEFAULT_WORKER_REGISTRATION_GRACE_S = 3600.0
DEFAULT_SESSION_TTL_S = 600.0
DEFAULT_L1_WRITE_TTL_S = 600
DEFAULT_L1_READ_TTL_S = 300
DEFAULT_EVICTION_TRIGGER_WATERMARK = 0.8
DEFAULT_EVICTION_RATIO = 0.2
"""Of the number of objects."""
