"""A load as the sweep sees one: reads its words, writes a report, ends with its exit code.

Its behaviour is in --workload: `good`, `invalid`, `silent` (no report), `wait` (until it is told).
"""

from __future__ import annotations

import json
import signal
import sys
import time

from tests.benchserver.sweep.reports import report


def main() -> int:
    """Do what was asked for; return the exit code."""
    words = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
    workload = words.get("workload", "good")
    print("workload", workload, flush=True)
    if workload == "silent":
        return 3
    if workload == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        print("waiting", flush=True)
        time.sleep(600)
    document = report(verdict="valid" if workload in ("good", "liar") else "invalid")
    document["words"] = words
    with open(words["json"], "w", encoding="utf-8") as file:
        json.dump(document, file)
    return 1 if workload == "liar" else int(document["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
