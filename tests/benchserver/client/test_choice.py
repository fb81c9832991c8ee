"""Which transfer mode is registered with, for each release, server and kind of memory."""

from __future__ import annotations

import pytest

from benchserver.client.choice import (
    check_groups,
    check_slots,
    choose_transfer,
)
from benchserver.errors import FatalError
from benchserver.options.engine import TransferChoice
from protocol.bounds import MAX_SLOTS
from protocol.dialects import V056, dialect_of

pytestmark = pytest.mark.usefixtures("leak_free")

AUTO, HANDLE, ENGINE = (
    TransferChoice.AUTO,
    TransferChoice.LMCACHE_DRIVEN,
    TransferChoice.ENGINE_DRIVEN,
)


def test_mixed_groups_where_they_cannot_be_registered() -> None:
    old = dialect_of("0.5.0")
    check_groups(old, "spec", {True})
    check_groups(V056, "spec", {True, False})
    with pytest.raises(FatalError, match=r"release 0\.5\.0 cannot register MLA layers beside"):
        check_groups(old, "spec", {True, False})


def test_more_chunks_than_one_answer_has() -> None:
    check_slots(ENGINE, MAX_SLOTS)
    check_slots(HANDLE, MAX_SLOTS + 1)
    with pytest.raises(FatalError, match=r"^a sequence has 65537 chunks, .* at most 65536 at a"):
        check_slots(ENGINE, MAX_SLOTS + 1)


@pytest.mark.parametrize(
    ("release", "asked", "served", "chosen"),
    [
        ("0.4.6", AUTO, "", ENGINE),
        ("0.4.6", AUTO, "gpu", ENGINE),
        ("0.4.7", AUTO, "non_gpu", ENGINE),
        ("0.4.7", AUTO, "gpu", HANDLE),
        ("0.4.7", ENGINE, "non_gpu", ENGINE),
        ("0.4.7", HANDLE, "gpu", HANDLE),
    ],
)
def test_transfer_modes_of_older_releases(
    release: str, asked: TransferChoice, served: str, chosen: TransferChoice
) -> None:
    assert choose_transfer(asked, served, 1, dialect_of(release)) is chosen


@pytest.mark.parametrize(
    ("release", "asked", "words"),
    [
        ("0.4.6", HANDLE, "release 0.4.6 cannot map KV tensors of a CPU"),
        ("0.4.5", AUTO, "release 0.4.5 has no transfer mode for KV tensors of a CPU"),
        ("0.4.5", HANDLE, "release 0.4.5 has no transfer mode for KV tensors of a CPU"),
        ("0.4.1", ENGINE, "release 0.4.1 has no transfer mode for KV tensors of a CPU"),
    ],
)
def test_transfer_modes_that_a_release_lacks(
    release: str, asked: TransferChoice, words: str
) -> None:
    with pytest.raises(FatalError, match=words):
        choose_transfer(asked, "", 1, dialect_of(release))


@pytest.mark.parametrize(
    ("release", "asked", "served", "chosen"),
    [
        ("0.5.7rc2", AUTO, "", HANDLE),
        ("0.5.6", AUTO, "auto", HANDLE),
        ("0.5.6", AUTO, "engine_driven", ENGINE),
        ("0.5.6", HANDLE, "", HANDLE),
        ("0.5.5", AUTO, "", ENGINE),
        ("0.5.5", AUTO, "auto", ENGINE),
        ("0.5.5", ENGINE, "auto", ENGINE),
        ("0.4.7", AUTO, "non_gpu", ENGINE),
    ],
)
def test_transfer_modes_of_gpu_memory(
    release: str, asked: TransferChoice, served: str, chosen: TransferChoice
) -> None:
    assert choose_transfer(asked, served, 1, dialect_of(release), gpu=True) is chosen


@pytest.mark.parametrize(
    ("release", "asked", "served", "groups"),
    [
        ("0.5.5", HANDLE, "", 1),
        ("0.5.5", AUTO, "lmcache_driven", 1),
        ("0.5.5", AUTO, "auto", 2),
        ("0.4.7", AUTO, "gpu", 1),
        ("0.4.5", AUTO, "", 1),
        ("0.4.5", ENGINE, "", 1),
    ],
)
def test_releases_that_gpu_memory_cannot_be_described_to(
    release: str, asked: TransferChoice, served: str, groups: int
) -> None:
    words = rf"release {release} takes CUDA memory described in a pickle .*\(0\.5\.6 and later"
    with pytest.raises(FatalError, match=words) as caught:
        choose_transfer(asked, served, groups, dialect_of(release), gpu=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "served", "groups", "chosen"),
    [
        (AUTO, "", 1, HANDLE),
        (AUTO, "auto", 1, HANDLE),
        (AUTO, "auto", 2, HANDLE),
        (AUTO, "lmcache_driven", 1, HANDLE),
        (AUTO, "engine_driven", 1, ENGINE),
        (AUTO, "something new", 1, HANDLE),
        (HANDLE, "", 1, HANDLE),
        (HANDLE, "auto", 2, HANDLE),
        (HANDLE, "lmcache_driven", 1, HANDLE),
        (ENGINE, "", 1, ENGINE),
        (ENGINE, "auto", 1, ENGINE),
        (ENGINE, "engine_driven", 1, ENGINE),
    ],
)
def test_transfer_modes(
    asked: TransferChoice, served: str, groups: int, chosen: TransferChoice
) -> None:
    assert choose_transfer(asked, served, groups) is chosen


@pytest.mark.parametrize(
    ("asked", "served", "groups", "reason"),
    [
        (
            HANDLE,
            "engine_driven",
            1,
            "--transfer-mode lmcache_driven, but the server serves engine_driven; start it with "
            "--supported-transfer-mode auto (or lmcache_driven)",
        ),
        (
            ENGINE,
            "lmcache_driven",
            1,
            "--transfer-mode engine_driven, but the server serves lmcache_driven; start it with "
            "--supported-transfer-mode auto (or engine_driven)",
        ),
        (
            AUTO,
            "engine_driven",
            2,
            "the server serves engine_driven alone, which carries one KV layer group, and the "
            "shape spec has 2; start it with --supported-transfer-mode auto",
        ),
    ],
)
def test_modes_that_are_not_served(
    asked: TransferChoice, served: str, groups: int, reason: str
) -> None:
    with pytest.raises(FatalError) as caught:
        choose_transfer(asked, served, groups)
    assert str(caught.value) == reason
