"""What Mooncake Store's return values mean (0.3.13.post1): each call has a rule of its own.

| call                | success                        | failure                               |
|---------------------|--------------------------------|---------------------------------------|
| `is_exist`          | 1 there, 0 not there           | negative code                         |
| `batch_is_exist`    | a list of those                | a negative code for each key          |
| `get`               | the data                       | `b""`, whatever has failed            |
| `get_buffer`        | a buffer                       | None, whatever has failed             |
| `get_into`          | the object's number of bytes   | negative code; -600 if it is too large|
| `get_size`          | the object's number of bytes   | negative code                         |
| `put`, `put_from`   | 0, also if the key is there: the old object stays | negative code      |
| `upsert`, `upsert_from` | 0, and the new object is there | negative code                     |
| `remove`            | 0                              | -706 while a read's lease of 10 s runs|
| `setup`, `register_buffer`, `close` | 0              | negative code                         |

An object of 0 bytes is refused by `put` (-600) and cannot be told from a failure by `get`.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_ROOM = -200
INVALID = -600
ABSENT = -704
NOT_READY = -703

MEANINGS: Mapping[int, str] = {
    NO_ROOM: "no segment of the store has room; mount more memory (segment_gb)",
    INVALID: "the store refused the arguments",
    NOT_READY: "the object is being replaced",
    ABSENT: "no such object",
    -706: "somebody's lease of the object still runs",
    -707: "the lease ran out before the transfer was done",
    -800: "the transfer failed; the process that holds the object may be gone",
    -900: "the master cannot be reached",
    -901: "the master did not answer in time",
}
"""Seen with 0.3.13.post1; another release may have others."""


def meaning_of(code: int) -> str:
    """Return a code with its meaning, as far as it is known."""
    return f"{MEANINGS.get(code, 'unknown error')} (Mooncake's code {code})"
