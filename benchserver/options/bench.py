"""The options of `bench-server` without a command: the baseline run."""

from __future__ import annotations

from benchserver.options.baseline import BASELINE
from benchserver.options.memory import MEMORY
from benchserver.options.output import OTHER, OUTPUT
from benchserver.options.target import TARGET

BENCH = (TARGET, MEMORY, BASELINE, OUTPUT, OTHER)
