"""A request over HTTP that is answered with an error status."""

from __future__ import annotations


class BadRequestError(Exception):
    """The status, and what the answer says in `detail`."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def unprocessable(detail: str) -> BadRequestError:
    """Return the error for a request that is understood, and makes no sense (422)."""
    return BadRequestError(422, detail)
