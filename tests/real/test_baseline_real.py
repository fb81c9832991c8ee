"""The acceptance list against the real LMCache server, at real sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import acceptance
from tests.mitm.running import Urls
from tests.real.conftest import StartServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("in_depth"),
]

SEQUENCES = 20
CASES = acceptance.HANDLE_CASES
ENGINE = (CASES["float16"][0], "--transfer-mode", "engine_driven", "--require-transport")


@pytest.mark.parametrize("name", CASES)
def test_proves_every_byte(name: str, real: Urls, tmp_path: Path) -> None:
    acceptance.check_case(real, CASES[name], SEQUENCES, tmp_path)


def test_engine_driven_inline(real: Urls, tmp_path: Path) -> None:
    acceptance.check_case(real, (*ENGINE, "inline"), SEQUENCES, tmp_path)


def test_engine_driven_shm(real_pooled: Urls, tmp_path: Path) -> None:
    acceptance.check_case(real_pooled, (*ENGINE, "shm"), SEQUENCES, tmp_path)


def test_engine_driven_shm_tp2_mla(real_pooled: Urls, tmp_path: Path) -> None:
    spec, *tp2 = CASES["mla_tp2"]
    case = (spec, *tp2, *ENGINE[1:], "shm")
    acceptance.check_case(real_pooled, case, SEQUENCES, tmp_path)


@pytest.mark.parametrize(("name", "ranks"), [("two_groups", 1), ("tp2", 2), ("mla_tp2", 2)])
def test_retrieves_in_part(name: str, ranks: int, real: Urls, tmp_path: Path) -> None:
    acceptance.check_parts(real, CASES[name], ranks, tmp_path)


def test_retrieves_in_part_what_is_warm(real: Urls, tmp_path: Path) -> None:
    acceptance.check_parts_of_warm(real, CASES["tp2"], 2, tmp_path)


def test_refuses_another_transport(real: Urls, tmp_path: Path) -> None:
    acceptance.check_wrong_transport(real, CASES["float16"], "shm", tmp_path)


def test_two_benches_at_once(real: Urls, tmp_path: Path) -> None:
    acceptance.check_two_at_once(real, CASES["two_groups"], SEQUENCES, tmp_path)


@pytest.mark.parametrize(("name", "ranks"), [("two_groups", 1), ("tp2", 2), ("mla_tp2", 2)])
def test_sequences_at_once(name: str, ranks: int, real: Urls, tmp_path: Path) -> None:
    acceptance.check_at_once(real, CASES[name], ranks, tmp_path)


def test_sequences_at_once_engine_driven(real_pooled: Urls, tmp_path: Path) -> None:
    acceptance.check_at_once(real_pooled, (*ENGINE, "shm"), 1, tmp_path)


def test_expect_warm(real: Urls, tmp_path: Path) -> None:
    acceptance.check_expect_warm(real, CASES["two_groups"], SEQUENCES, tmp_path)


def test_same_seed_twice_fails(real: Urls, tmp_path: Path) -> None:
    acceptance.check_seen_twice(real, CASES["two_groups"], 1, tmp_path)


def test_wrong_mode_names_the_server_flag(start_server: StartServer, tmp_path: Path) -> None:
    with start_server(serves="lmcache_driven") as running:
        acceptance.check_wrong_mode(running.urls, CASES["float16"], tmp_path)
