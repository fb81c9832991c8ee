"""What is drawn for a request."""

from __future__ import annotations

from collections.abc import Callable

from benchserver.config.engine import Engine
from benchserver.kv.pattern import chunk_digests
from benchserver.load.request import Part, Request
from benchserver.load.tokens import Tokens
from benchserver.scenarios.load.work import Drawing

ROOT = bytes(16)


def test_only_whole_chunks_are_asked_for(make_engine: Callable[..., Engine]) -> None:
    geometry = make_engine(num_tokens=96).geometry(32)
    drawing = Drawing(tokens=Tokens(7), geometry=geometry, content_root=ROOT)
    one = drawing.work(Request(number=3, parts=(Part("a", 40), Part("b", 30))))
    assert (one.number, len(one.tokens), one.end, len(one.ids)) == (3, 70, 64, 2)
    assert one.digests == chunk_digests(ROOT, one.tokens, 32)
    other = drawing.work(Request(number=4, parts=(Part("a", 40), Part("c", 30))))
    assert [a == b for a, b in zip(one.ids, other.ids, strict=True)] == [True, False]
    assert [a == b for a, b in zip(one.digests, other.digests, strict=True)] == [True, False]
    short = drawing.work(Request(number=5, parts=(Part("a", 31),)))
    assert (short.end, short.ids, short.digests) == (0, [], ())
