"""The table of releases, without a server; test_servers_real.py holds it against each release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.releases import RELEASES, NotOfferedError, release_named

TABLE = Path(__file__).with_name("releases.py")


@pytest.mark.parametrize(
    ("name", "mode", "pool", "options"),
    [
        ("0.4.6", "engine_driven", "", "--transfer-mode non_gpu"),
        ("0.4.7", "auto", "", "--supported-transfer-mode auto --shm-name "),
        ("0.4.7", "lmcache_driven", "p", "--supported-transfer-mode gpu --shm-name p"),
        ("0.5.0", "engine_driven", "", "--supported-transfer-mode engine_driven --shm-name "),
        ("0.5.7rc2", "auto", "p", "--supported-transfer-mode auto --shm-name p"),
    ],
)
def test_options(name: str, mode: str, pool: str, options: str) -> None:
    assert release_named(name).mode_options(mode, pool) == tuple(options.split(" "))


def test_what_a_release_does_not_offer_is_refused() -> None:
    with pytest.raises(NotOfferedError, match=r"0\.4\.6 has no shared-memory pool"):
        release_named("0.4.6").mode_options("engine_driven", "p")
    with pytest.raises(NotOfferedError, match="serves lmcache_driven or engine_driven, not auto"):
        release_named("0.4.6").mode_options("auto", "")
    with pytest.raises(
        LookupError, match=r"'0\.5\.66' is not a release .* 0\.4\.6, .*, 0\.5\.7rc2"
    ):
        release_named("0.5.66")


def test_as_a_program_it_prints_the_names() -> None:
    printed = subprocess.run(
        [sys.executable, TABLE], capture_output=True, text=True, timeout=30, check=True
    )
    names = [release.name for release in RELEASES]
    assert printed.stdout.split() == names
    assert len(set(names)) == len(names)
