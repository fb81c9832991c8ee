"""The query of GET /kvcache/check; answers are tested with the whole server."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from benchserver.refserver.front.badrequest import BadRequestError
from benchserver.refserver.front.digests import DigestQuestion, question_in_query

pieces = st.sampled_from(
    ["0", "1", "8", "007", "999999999", "1048577", "-1", ",", "[", "]", "[0,3]", "[3,0]", " ", "٣"]
)
query_texts = st.lists(pieces, max_size=8).map("".join) | st.text(max_size=12)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "block_ids": query_texts,
            "chunk_size": query_texts,
            "instance_id": query_texts,
            "layerwise": st.sampled_from(["true", "False", "1", "", "no"]) | st.text(max_size=4),
        },
    )
)
@example({"block_ids": "[0,999999999]"})
@example({"block_ids": "[0,1048575]", "chunk_size": "-" + "9" * 19})
def test_any_query_is_read_or_refused(query: dict[str, str]) -> None:
    refused: tuple[int, str] | None = None
    try:
        asked = question_in_query(query)
    except BadRequestError as error:
        refused = error.status, error.detail
    if refused:
        assert refused[0] in (400, 422)
        assert refused[1].isprintable()
        return
    assert len(asked.block_ids) <= 1 << 20
    assert all(block_id >= 0 for block_id in asked.block_ids)
    assert abs(asked.blocks_per_chunk) < 10**19
    assert abs(asked.instance_id) < 10**19
    assert asked.layerwise is (query.get("layerwise", "").lower() in ("true", "1"))


@given(st.lists(st.integers(0, 99) | st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1))
def test_ranges_are_closed_and_in_order(parts: list[int | tuple[int, int]]) -> None:
    texts, wanted = list[str](), list[int]()
    for part in parts:
        first, more = (part, 0) if isinstance(part, int) else part
        texts.append(str(part) if isinstance(part, int) else f"[{first},{first + more}]")
        wanted += range(first, first + more + 1)
    query = {"block_ids": ",".join(texts), "chunk_size": "2", "instance_id": "-3"}
    assert question_in_query(query) == DigestQuestion(
        block_ids=wanted, blocks_per_chunk=2, instance_id=-3, layerwise=False
    )
