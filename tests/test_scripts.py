"""The scripts that stand on the same code as the tests still run: one short round of each."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SHORT = {
    "fuzz_server": ("--seconds", "3", "--seed", "1"),
    "soak_evictions": ("--sequences", "64", "--workers", "2", "--seed", "1"),
    "kill_fs_tier": ("--rounds", "1", "--seed", "1"),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_round_passes(name: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / name), *SHORT[name]]
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout
    assert "PASS" in ended.stdout


def measured(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/measure"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_measure_prints_the_figures_of_a_tree(tmp_path: Path) -> None:
    for place, lines in {
        "benchserver/a.py": 100,
        "protocol/b.py": 20,
        "tests/test_a.py": 60,
    }.items():
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text("def f():\n" + "    pass\n" * 9 + "\n" * (lines - 10))
    (tmp_path / "protocol/__init__.py").touch()
    printed = measured(str(tmp_path))
    assert printed.returncode == 0, printed
    assert printed.stdout.splitlines()[2:] == [
        "| product | 2 | 120 | 60 / 100 | 10 / 10 / 10 | 0 of 2 | 0.50 |",
        "| tests | 1 | 60 | 60 / 60 | 10 / 10 / 10 | 0 of 1 |  |",
        "| scripts | - | - | - | - | - | - |",
    ]


def test_measure_prints_rooms_and_rings(tmp_path: Path) -> None:
    (tmp_path / "benchserver/kv").mkdir(parents=True)
    (tmp_path / "benchserver/run.py").write_text("import benchserver.kv.pool\n")
    (tmp_path / "benchserver/kv/pool.py").write_text("import benchserver.run\n")
    printed = measured(str(tmp_path), "--rooms")
    assert printed.stdout.splitlines() == [
        "benchserver/kv -> benchserver/run",
        "benchserver/run -> benchserver/kv",
        "2 rooms, 2 arrows, 2 rings",
        "ring: benchserver/kv -> benchserver/run -> benchserver/kv",
        "ring: benchserver/kv/pool.py -> benchserver/run.py -> benchserver/kv/pool.py",
    ]


def test_measure_refuses_a_folder_without_our_code(tmp_path: Path) -> None:
    printed = measured(str(tmp_path))
    assert printed.returncode == 2
    assert "no Python files of ours" in printed.stderr


def documented(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/document_options"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_the_options_are_documented_as_the_code_has_them() -> None:
    compared = documented("--check")
    assert (compared.returncode, compared.stdout, compared.stderr) == (0, "", "")


def test_a_document_that_lacks_an_option_or_a_command_is_told_and_mended(tmp_path: Path) -> None:
    text = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    path = tmp_path / "options.md"
    path.write_text("".join(line for line in text.splitlines(True) if "--tp-size" not in line))
    compared = documented("--check", str(path))
    assert (compared.returncode, compared.stdout) == (
        1,
        "options.md is not what the code says: run scripts/document_options\n",
    )
    assert documented(str(path)).returncode == 0
    assert path.read_text(encoding="utf-8") == text
    path.write_text(text.replace("<!-- options of bench-server ping -->", ""))
    compared = documented("--check", str(path))
    assert (compared.returncode, compared.stdout) == (
        1,
        "options.md has no table of: bench-server ping\n",
    )


def run_blind(name: str) -> subprocess.CompletedProcess[str]:
    """Run a script where no CUDA device is visible."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.parametrize("name", ["gpu", "bench_gpu"])
def test_without_a_device_gpu_scripts_fail_and_say_so(name: str) -> None:
    ended = run_blind(name)
    assert ended.returncode == 1, ended
    last = ended.stdout.splitlines()[-1]
    assert "FAIL" in last
    assert "(exit 1)" in last
    assert "the driver offers no CUDA device here" in last
    assert not ended.stderr


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpu", ("--only", "nonsense"), "no such section"),
        ("gpu", ("--only", "server"), "needs --rpc-url and --url"),
        ("gpu", ("--rpc-url", "tcp://127.0.0.1:1"), "go together"),
        ("gpu", ("--gpus", "0"), "expected 1 or more"),
        ("bench_gpu", ("--only", "nonsense"), "no such part"),
        ("bench_gpu", ("--only", "real", "--rpc-url", "a", "--url", "b"), "needs"),
        ("bench_gpu", ("--url", "http://127.0.0.1:1"), "go together"),
        ("bench_gpu", ("--rounds", "1"), "must be 3 to 1000"),
    ],
)
def test_gpu_scripts_refuse_wrong_usage(
    name: str,
    options: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = str(ROOT / "scripts" / name)
    monkeypatch.setattr(sys, "argv", [script, *options])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as raised:
        runpy.run_path(script, run_name="__main__")
    assert raised.value.code == 2
    assert words in capsys.readouterr().err


def test_gpu_tests_that_were_asked_for_fail_without_a_device() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ended.returncode == 1, ended
    assert "tests marked gpu were asked for, but the driver offers no CUDA device" in ended.stdout
    assert "skipped" not in ended.stdout
