"""One request of a plan as a client sends it: its tokens, its chunks and their content.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.geometry import Geometry
from benchserver.kv.pattern import chunk_digests
from benchserver.load.request import Request, chunk_ids
from benchserver.load.tokens import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A request with what is drawn for it; only whole chunks are asked for.

    `ids` name its chunks, `digests` say what they hold.
    """

    number: int
    tokens: list[int]
    end: int
    ids: list[bytes]
    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Draws the requests of a run."""

    tokens: Tokens
    geometry: Geometry
    content_root: bytes

    def work(self, request: Request) -> Work:
        """Return what a request asks for."""
        chunk_tokens = self.geometry.chunk_tokens
        array = self.tokens.array(request)
        ids = chunk_ids(request, chunk_tokens)
        return Work(
            number=request.number,
            tokens=array.tolist(),
            end=len(ids) * chunk_tokens,
            ids=ids,
            digests=chunk_digests(self.content_root, array, chunk_tokens),  # type: ignore[arg-type]
        )
