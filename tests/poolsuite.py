"""What every KV pool must do, whatever its memory: a suite over a factory of pools.

A pool under test lies beside a pool in host memory.  Both get the same calls and the same damage;
their bytes and their evidence must be the same, and right.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import Window
from benchserver.kv.evidence import Evidence, EvidenceKind, PageOwner
from benchserver.kv.layout import place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK
from benchserver.kv.pool import shares
from benchserver.kv.verify import verify, verify_canaries, verify_reused, verify_skipped
from shapespec import (
    chunk_bytes,
    layer_indices,
    parse_shape_spec,
    planes,
)
from tests.pools import (
    BLOCKS_PER_CHUNK,
    CHUNKS,
    CLASSIC,
    DIGESTS,
    OTHER,
    PAST,
    SPECS,
    OpenPool,
    damage,
    layers_of,
    looks,
    open_host,
    plan,
    plane_name,
    restored,
    written,
)

EXAMPLES = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
)
every_spec = pytest.mark.parametrize("text", SPECS)


class PoolSuite:
    """The tests; a subclass names the factory, and how many bytes and examples are tried."""

    open: OpenPool
    max_examples = 60
    max_bytes = 64

    # Writing

    @every_spec
    def test_a_new_pool_holds_canaries(self, text: str) -> None:
        with self.open(text) as tested, open_host(text) as host:
            assert verify_canaries(tested.pool, plan()[0]).kind is EvidenceKind.MATCH
            memory, expected = tested.read(), host.read()
        for pages in (layers_of(memory, text), layers_of(expected, text)):
            assert all((layer[:, 0] == CANARY_BYTE).all() for layer in pages)
        for layers in (layers_of(memory, text), layers_of(expected, text)):
            for layer in layers:
                layer[:, 1:] = 0  # what nobody has written
        assert memory.tobytes() == expected.tobytes()

    @every_spec
    def test_fill_writes_each_page_in_table_order(self, text: str) -> None:
        window = Window(first=3, count=8, block_ids=(7, 3, 10, 5, 4, 9, 6, 8), canaries=())
        for rank in (0, 3):
            with self.open(text, content_rank=rank, ranks=4) as tested:
                tested.pool.fill(window, DIGESTS)
                layers = layers_of(tested.read(), text)
                assert verify(tested.pool, window, DIGESTS, ()).kind is EvidenceKind.MATCH
            for (layer, plane, block_id), page in written(text, window, rank).items():
                assert layers[layer][plane, block_id].tobytes() == page

    @every_spec
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_every_byte_is_as_in_host_memory(self, text: str, count: int) -> None:
        source, destination = plan(count)
        with self.open(text) as tested, open_host(text) as host:
            background = (np.arange(host.read().size) % 251).astype(np.uint8)
            for pool in (tested, host):
                pool.write(background)
                for share in shares(count):
                    pool.pool.fill(source, DIGESTS, share)
                    pool.pool.poison(destination, share)
            assert tested.read().tobytes() == host.read().tobytes()

    def test_a_share_is_only_its_own_layers(self) -> None:
        text = "(2,24,1,1,4):float16:3;(1,24,1,1,16):uint8:2"
        source, destination = plan()
        with self.open(text) as tested:
            before = layers_of(tested.read(), text)
            tested.pool.fill(source, DIGESTS, (1, 3))
            tested.pool.poison(destination, (1, 3))
            after = layers_of(tested.read(), text)
        changed = [
            not (old[:, 1:] == new[:, 1:]).all() for old, new in zip(before, after, strict=True)
        ]
        assert changed == [False, True, False, False, True]

    def test_poison_and_canaries(self) -> None:
        _, window = plan()
        with self.open(CLASSIC) as tested:
            tested.pool.poison(window)
            layers = layers_of(tested.read(), CLASSIC)
        for pages in layers:
            assert (pages[:, list(window.block_ids)] == POISON_BYTE).all()
            assert (pages[:, list(window.canaries)] == CANARY_BYTE).all()
            assert (pages[:, 0] == CANARY_BYTE).all()

    @every_spec
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_reused_blocks_differ_in_every_byte_and_can_be_told_still(
        self, text: str, count: int
    ) -> None:
        source, _ = plan(count)
        with self.open(text) as tested:
            tested.pool.fill(source, DIGESTS)
            filled = tested.read()
            for share in shares(count):
                tested.pool.reuse(source, share)
            changed = tested.read() ^ filled
            for pages in layers_of(changed, text):
                assert (pages[:, list(source.block_ids)] == REUSED_MASK).all()
            size = sum(p[:, list(source.block_ids)].size for p in layers_of(changed, text))
            assert np.count_nonzero(changed) == size
            assert verify(tested.pool, source, DIGESTS, PAST).kind is EvidenceKind.MISMATCH
            seen = verify_reused(tested.pool, source, DIGESTS, PAST)
            assert (seen.kind, seen.checked_bytes) == (EvidenceKind.MATCH, size)

    @every_spec
    @pytest.mark.parametrize("before", [True, False])
    def test_a_byte_that_another_wrote_into_reused_blocks_is_found(
        self, text: str, before: bool
    ) -> None:
        source, _ = plan()
        with self.open(text) as tested:
            tested.pool.fill(source, DIGESTS)
            if not before:
                tested.pool.reuse(source)
            memory = tested.read().copy()
            layers_of(memory, text)[-1][0, source.block_ids[2], 1] ^= 0x10
            tested.write(memory)
            if before:
                tested.pool.reuse(source)
            seen = verify_reused(tested.pool, source, DIGESTS, PAST)
        assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, 1)
        assert seen.first is not None
        assert (seen.first.block_id, seen.first.offset) == (source.block_ids[2], 1)

    def test_a_window_with_canaries_is_not_reused(self) -> None:
        with self.open(CLASSIC) as tested:
            before = tested.read().tobytes()
            with pytest.raises(ValueError, match="only a source window"):
                tested.pool.reuse(plan()[1])
            assert tested.read().tobytes() == before

    def test_what_was_read_too_late_is_said_to_be(self) -> None:
        source, _ = plan()
        with self.open(CLASSIC) as tested:
            tested.pool.fill(source, DIGESTS)
            tested.pool.reuse(source)
            seen = verify(tested.pool, source, DIGESTS, PAST)
        assert seen.first is not None
        assert "as overwritten after STORE was acknowledged: it was read too late" in (
            seen.first.owner
        )

    def test_a_window_with_canaries_is_not_filled(self) -> None:
        with self.open(CLASSIC) as tested:
            before = tested.read().tobytes()
            with pytest.raises(ValueError, match="only a source window"):
                tested.pool.fill(plan()[1], DIGESTS)
            assert tested.read().tobytes() == before

    # Seeing

    @every_spec
    def test_a_restored_destination_matches(self, text: str) -> None:
        spec = parse_shape_spec(text)
        rows = sum(group.layers * planes(group) for group in spec.groups)
        for turn in range(2):
            window = plan(turn)[1]
            with self.open(text) as tested:
                tested.write(restored(tested, text, window))
                seen = verify(tested.pool, window, DIGESTS, PAST)
                assert verify_canaries(tested.pool, window).kind is EvidenceKind.MATCH
            assert seen == Evidence(
                kind=EvidenceKind.MATCH,
                pages=8 * rows,
                checked_bytes=CHUNKS * chunk_bytes(spec, BLOCKS_PER_CHUNK * spec.block_size),
            )

    @every_spec
    def test_any_flipped_byte_is_found_with_its_place(self, text: str) -> None:
        window = plan(1)[1]
        with self.open(text) as tested:
            good = restored(tested, text, window)

            @settings(EXAMPLES, max_examples=self.max_examples)
            @given(data=st.data())
            def check(data: st.DataObject) -> None:
                memory = good.copy()
                layers = layers_of(memory, text)
                layer = data.draw(st.integers(0, len(layers) - 1))
                plane = data.draw(st.integers(0, layers[layer].shape[0] - 1))
                column = data.draw(st.integers(0, 7))
                offset = data.draw(st.integers(0, layers[layer].shape[2] - 1))
                page = layers[layer][plane, window.block_ids[column]]
                right = page.tobytes()
                page[offset] ^= data.draw(st.integers(1, 255))
                tested.write(memory)
                seen = verify(tested.pool, window, DIGESTS, PAST)
                assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, 1)
                assert seen.first is not None
                assert seen.first.place == PageOwner(
                    label="",
                    chunk=column // 2,
                    rank=0,
                    layer=layer,
                    plane=plane_name(text, layer, plane),
                    block=column % 2,
                )
                assert seen.first.block_id == window.block_ids[column]
                assert seen.first.offset == offset
                assert seen.first.expected == right[offset : offset + 8]
                assert seen.first.seen == page.tobytes()[offset : offset + 8]

            check()

    @every_spec
    def test_every_single_byte_of_a_page_is_looked_at(self, text: str) -> None:
        """Of one page in the last layer, byte by byte (of long pages, what tiles end on)."""
        window = plan(0)[1]
        with self.open(text) as tested:
            memory = restored(tested, text, window)
            layers = layers_of(memory, text)
            page = layers[-1][-1, window.block_ids[-1]]
            few = range(min(page.size, self.max_bytes))
            for offset in {*few, *range(1000, page.size, 997), page.size - 1}:
                page[offset] ^= 0x10
                tested.write(memory)
                page[offset] ^= 0x10
                seen = verify(tested.pool, window, DIGESTS, PAST)
                assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, 1)
                assert seen.first is not None
                assert seen.first.offset == offset

    @every_spec
    def test_any_damage_is_told_as_in_host_memory(self, text: str) -> None:
        """Flipped bytes anywhere, in guards too; swapped, repeated, poisoned and zeroed pages."""
        with self.open(text) as tested, open_host(text) as host:

            @settings(EXAMPLES, max_examples=self.max_examples)
            @given(data=st.data())
            def check(data: st.DataObject) -> None:
                window = plan(data.draw(st.integers(0, 3)))[data.draw(st.integers(0, 1))]
                skipped = data.draw(st.integers(1, 7))
                memory = restored(host, text, window, data.draw(st.sampled_from([0, skipped])))
                for _ in range(data.draw(st.integers(0, 3))):
                    damage(data, memory, layers_of(memory, text))
                for pool in (tested, host):
                    pool.write(memory)
                assert looks(tested.pool, window, skipped) == looks(host.pool, window, skipped)

            check()

    @every_spec
    def test_a_destination_that_nobody_wrote_is_untouched(self, text: str) -> None:
        _, window = plan()
        with self.open(text) as tested, open_host(text) as host:
            for pool in (tested, host):
                pool.pool.poison(window)
            seen = verify(tested.pool, window, DIGESTS, PAST)
            assert seen == verify(host.pool, window, DIGESTS, PAST)
            assert (seen.kind, seen.bad_pages) == (EvidenceKind.UNTOUCHED, seen.pages)
            assert seen.first is not None
            assert seen.first.owner == "poison: nothing was written"
            part = verify(tested.pool, window, DIGESTS, PAST, skipped=3)
            assert part == verify(host.pool, window, DIGESTS, PAST, skipped=3)
            assert part.kind is EvidenceKind.UNTOUCHED
            memory = tested.read()
            layers_of(memory, text)[-1][0, window.block_ids[7], 0] = 0
            tested.write(memory)
            assert verify(tested.pool, window, DIGESTS, PAST).kind is EvidenceKind.MISMATCH

    @every_spec
    @pytest.mark.parametrize("digests", [(11, 33, 22, 44), OTHER])
    def test_other_content_says_whose_it_is(self, text: str, digests: tuple[int, ...]) -> None:
        window = Window(first=3, count=8, block_ids=(4, 3, *range(5, 11)), canaries=())
        for rank in (0, 3):
            with open_host(text, content_rank=rank, ranks=4) as other:
                other.pool.fill(window, digests)
                memory = other.read()
            with self.open(text, ranks=4) as tested, open_host(text, ranks=4) as host:
                for pool in (tested, host):
                    pool.write(memory)
                seen = looks(tested.pool, window, 2)
                assert seen == looks(host.pool, window, 2)
            assert seen[0].kind is EvidenceKind.MISMATCH

    def test_the_pages_of_another_layer_are_named(self) -> None:
        window = Window(first=3, count=8, block_ids=tuple(range(3, 11)), canaries=())
        with self.open(CLASSIC) as tested:
            tested.pool.fill(window, DIGESTS)
            memory = tested.read()
            first, second = layers_of(memory, CLASSIC)
            first[1] = second[0]
            tested.write(memory)
            seen = verify(tested.pool, window, DIGESTS, PAST)
        assert seen.first is not None
        assert seen.first.owner == "the page of seq 2 chunk 0 rank 0 layer 1 plane K block 0"
        assert (seen.first.place.layer, seen.first.place.plane) == (0, "V")

    @every_spec
    @pytest.mark.parametrize("which", [0, 1])
    def test_a_destination_restored_in_part(self, text: str, which: int) -> None:
        window = plan()[which]
        rows = sum(group.layers * planes(group) for group in parse_shape_spec(text).groups)
        with self.open(text) as tested:
            for skipped in range(1, 8):
                tested.write(restored(tested, text, window, skipped))
                kept = verify_skipped(tested.pool, window, PAST, skipped=skipped)
                rest = verify(tested.pool, window, DIGESTS, PAST, skipped=skipped)
                whole = verify(tested.pool, window, DIGESTS, PAST)
                assert (kept.kind, kept.pages) == (EvidenceKind.MATCH, skipped * rows)
                assert (rest.kind, rest.pages) == (EvidenceKind.MATCH, (8 - skipped) * rows)
                assert kept.checked_bytes + rest.checked_bytes == whole.checked_bytes
                assert whole.kind is EvidenceKind.MISMATCH
                assert whole.bad_pages == skipped * rows

    @pytest.mark.parametrize("skipped", [-1, 0, 8, 9])
    def test_a_part_without_a_page_is_no_evidence(self, skipped: int) -> None:
        _, window = plan()
        with self.open(CLASSIC) as tested:
            tested.pool.poison(window)
            if skipped not in (0,):
                with pytest.raises(ValueError, match=f"{skipped} of 8 blocks skipped"):
                    verify(tested.pool, window, DIGESTS, (), skipped=skipped)
            if skipped not in (8,):
                with pytest.raises(ValueError, match=f"{skipped} of 8 blocks skipped"):
                    verify_skipped(tested.pool, window, (), skipped=skipped)

    @every_spec
    def test_any_flipped_byte_beside_the_blocks_is_found(self, text: str) -> None:
        _, window = plan(2)
        spec = parse_shape_spec(text)
        places, _ = place_tensors(spec)
        with self.open(text) as tested:
            good = restored(tested, text, window)
            inside = np.zeros(good.size, bool)
            for place, layer in zip(places, layers_of(good, text), strict=True):
                watched = np.zeros(layer.shape, bool)
                watched[:, [0, *window.canaries]] = True
                inside[place.offset : place.offset + place.nbytes] = ~watched.reshape(-1)
            beside = np.flatnonzero(~inside)

            @settings(EXAMPLES, max_examples=self.max_examples)
            @given(index=st.integers(0, beside.size - 1), bits=st.integers(1, 255))
            def check(index: int, bits: int) -> None:
                memory = good.copy()
                memory[beside[index]] ^= bits
                tested.write(memory)
                seen = verify_canaries(tested.pool, window)
                assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, 1)
                assert seen.first is not None
                assert seen.first.seen[0] == CANARY_BYTE ^ bits
                assert verify(tested.pool, window, DIGESTS, PAST).kind is EvidenceKind.MATCH

            check()

    # Chunks

    @every_spec
    def test_a_chunk_is_laid_out_by_plane_layer_token_and_hidden(self, text: str) -> None:
        spec = parse_shape_spec(text)
        source, destination = plan()
        table = source.block_ids[2:4]
        target = destination.block_ids[6:8]
        with self.open(text) as tested:
            tested.pool.fill(source, DIGESTS)
            tested.pool.poison(destination)
            for index, group in enumerate(spec.groups):
                before = tested.read()
                mine = [layers_of(before, text)[layer] for layer in layer_indices(spec)[index]]
                plain = b"".join(
                    pages[plane, block].tobytes()
                    for plane in range(planes(group))
                    for pages in mine
                    for block in table
                )
                chunk = np.empty(len(plain), np.uint8)
                tested.pool.gather_chunk(index, table, chunk)
                assert chunk.tobytes() == plain
                tested.pool.scatter_chunk(index, target, chunk)
                for pages in mine:
                    pages[:, list(target)] = pages[:, list(table)]
                assert tested.read().tobytes() == before.tobytes()

    def test_a_chunk_of_another_size_is_refused(self) -> None:
        with self.open(CLASSIC) as tested:
            with pytest.raises(ValueError, match="reshape"):
                tested.pool.scatter_chunk(0, (1, 2), np.zeros(127, np.uint8))
            with pytest.raises(ValueError, match="reshape"):
                tested.pool.gather_chunk(0, (1, 2), np.zeros(129, np.uint8))

    @every_spec
    def test_digests_of_chunks(self, text: str) -> None:
        spec = parse_shape_spec(text)
        source, _ = plan()
        with self.open(text) as tested, open_host(text) as host:
            tested.pool.fill(source, DIGESTS)
            memory = tested.read()
            host.write(memory)
            for table in (source.block_ids[4:6], source.block_ids[:2], (5, 1)):
                md5 = hashlib.md5()
                for place, pages in zip(
                    place_tensors(spec)[0], layers_of(memory, text), strict=True
                ):
                    raw = b"".join(
                        pages[plane, block].tobytes()
                        for plane in range(pages.shape[0])
                        for block in table
                    )
                    if spec.groups[place.group].dtype.name == "bfloat16":
                        raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
                    md5.update(raw)
                assert tested.pool.chunk_digest(table) == md5.hexdigest()
                assert host.pool.chunk_digest(table) == md5.hexdigest()

    def test_digests_of_any_bytes(self) -> None:
        """Every bfloat16 pattern is widened as the server does, NaNs included."""
        text = "(2,24,64,16,64):bfloat16:1"
        with self.open(text) as tested, open_host(text) as host:
            memory = np.random.default_rng(5).integers(0, 256, host.read().size, np.uint8)
            layers_of(memory, text)[0][0, 3] = np.arange(1 << 16, dtype="<u2").view(np.uint8)
            for pool in (tested, host):
                pool.write(memory)
            for table in ((3, 1), (2, 23)):
                assert tested.pool.chunk_digest(table) == host.pool.chunk_digest(table)

    def test_many_threads_hash_at_once(self) -> None:
        source, _ = plan()
        text = SPECS[-1]
        with self.open(text) as tested, open_host(text) as host:
            for pool in (tested, host):
                pool.pool.fill(source, DIGESTS)
            tables = [source.block_ids[start : start + 2] for start in (0, 2, 4, 6)] * 4
            answers: list[str] = [""] * len(tables)

            def work(number: int) -> None:
                answers[number] = tested.pool.chunk_digest(tables[number])

            threads = [threading.Thread(target=work, args=(n,)) for n in range(len(tables))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert answers == [host.pool.chunk_digest(table) for table in tables]

    # Ending

    def test_cancel_ends_every_method(self) -> None:
        source, destination = plan()
        cancel = threading.Event()
        with self.open(CLASSIC, cancel=cancel) as tested:
            pool = tested.pool
            cancel.set()
            works: list[Callable[[], object]] = [
                lambda: pool.fill(source, DIGESTS),
                lambda: pool.poison(destination),
                lambda: verify(pool, destination, DIGESTS, ()),
                lambda: verify_canaries(pool, destination),
                lambda: verify_skipped(pool, destination, (), skipped=1),
                lambda: pool.chunk_digest((1, 2)),
            ]
            for work in works:
                with pytest.raises(WorkCancelledError):
                    work()

    def test_close_may_be_called_again(self) -> None:
        with self.open(CLASSIC) as tested:
            tested.pool.close()
            tested.pool.close()
