"""Known-bad servers, made of our embedded server and a man in the middle: each is caught.

A fast part of the table; tests/real/test_faults_real.py has it all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mitm.bench import assert_caught, options_for, run_bench
from tests.mitm.fault import HANDLE, INLINE, SHM
from tests.mitm.faults import FAULTS
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls, running_proxy

HANDLE_FAULTS = (
    "pass_through",
    "noop_retrieve",
    "flip_byte",
    "half_retrieve",
    "canary_overwrite",
    "skip_zeroed",
    "skip_one_block_more",
    "rank_mixup",
    "stale_data",
    "drop_store",
    "lose_reply",
    "garble_reply",
    "duplicate_reply",
    "foreign_uid",
    "late_reply",
    "miscount_up",
    "endless_prefetch",
    "digest_lies",
    "digest_hangs",
    "leak_lock",
    "leak_registration",
)
SHM_FAULTS = ("shm_pass_through", "corrupt_slot", "slot_out_of_pool")
INLINE_FAULTS = ("inline_garbled", "inline_flip")


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


@pytest.fixture(scope="module")
def pooled_server() -> Iterator[Urls]:
    with forked_server("--shm-name", f"faults{os.getpid()}") as running:
        yield running.urls


def check(name: str, server: Urls, transport: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    assert fault.transport == transport
    with running_proxy(fault, server) as urls:
        ended = run_bench(urls, options_for(fault), tmp_path / "report.json")
    assert_caught(ended, fault)


@pytest.mark.parametrize("name", HANDLE_FAULTS)
def test_handle_fault(name: str, server: Urls, tmp_path: Path) -> None:
    check(name, server, HANDLE, tmp_path)


@pytest.mark.parametrize("name", SHM_FAULTS)
def test_shm_fault(name: str, pooled_server: Urls, tmp_path: Path) -> None:
    check(name, pooled_server, SHM, tmp_path)


@pytest.mark.parametrize("name", INLINE_FAULTS)
def test_inline_fault(name: str, server: Urls, tmp_path: Path) -> None:
    check(name, server, INLINE, tmp_path)


def test_killed_server(tmp_path: Path) -> None:
    fault = FAULTS["kill_server"]
    with (
        forked_server() as running,
        running_proxy(fault, running.urls, kill=running.kill) as urls,
    ):
        ended = run_bench(urls, options_for(fault), tmp_path / "report.json")
    assert_caught(ended, fault)
