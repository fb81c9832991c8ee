"""From the URL of an L2 tier to the tier: every mistake is one line that says what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

from benchserver.clock import NS_PER_MS, Clock, RealClock
from benchserver.errors import UsageError, one_line
from benchserver.refserver.tiers.fineclock import FineClock
from benchserver.refserver.tiers.tier import UNLIMITED, Tier

MAX_GB = 1 << 20
"""A store of a pebibyte is larger than any that this stands for."""

MAX_LATENCY_MS = 60_000
MAX_GB_PER_S = 1 << 20
MIN_GB_PER_S = Decimal("0.000001")
"""Beyond these a run would not end, or nothing would be simulated."""

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>[^/?#]*)(?P<path>[^?#]*)"
                  r"(?:\?(?P<query>[^#]*))?", re.ASCII)
_INTEGER = re.compile(r"[0-9]{1,12}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)
_GB_BYTES = 1 << 30
