"""Recording sessions, with our own server and client as a release's `lmcache`."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol import codec
from protocol.dialects import dialect_of
from protocol.ops import Op
from tests.mitm.memory import SHM_DIR
from tests.real.goldensessions import GOLDEN, ROOT, parse, sessions_of
from tests.real.releases import RELEASES, release_named

RELEASE = "0.5.7rc2"
WITHIN_S = 100.0
STAND_IN = f"""#!{sys.executable}
import os, sys
from pathlib import Path

sys.path.insert(0, {str(ROOT)!r})
verb, *rest = sys.argv[1:]
with Path(__file__).with_name("seen").open("a") as seen:
    print(os.getpid(), verb, file=seen)
options = dict(zip(rest[verb == "bench"::2], rest[1 + (verb == "bench")::2]))
spec = options.get("--kvcache-shape-spec", "")
if verb == "bench":
    BENCH
    options["--kvcache-shape-spec"] = spec.replace(",64,", ",96,")  # ours uses other blocks twice
    command = []
else:
    command = ["serve", "--as", "{RELEASE}"]
    del options["--eviction-policy"], options["--max-workers"]
    options = {{k: v for k, v in options.items() if v}}
arguments = [part for option in options.items() for part in option]
os.chdir({str(ROOT)!r})
os.execv(sys.executable, [sys.executable, "-m", "benchserver", *command, *arguments])
"""

RUN = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from tests.real.goldensessions import main

sys.exit(main(sys.argv[3:], Path(sys.argv[2])))
"""


@pytest.fixture
def environments(tmp_path: Path) -> Path:
    """Return a folder of environments, one of which holds the stand-in."""
    install(tmp_path / "real", "pass")
    return tmp_path / "real"


def install(environments: Path, bench: str) -> None:
    """Make the environment; `bench` is what its client does first."""
    folder = environments / RELEASE / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "lmcache"
    command.write_text(STAND_IN.replace("BENCH", bench))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an index that has a recording of another release."""
    folder = tmp_path / "golden"
    folder.mkdir()
    (folder / "INDEX.json").write_text('{"note": "n", "files": {"v056_x.json": {}}}')
    return folder


@contextmanager
def recording(environments: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(ROOT), str(environments), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_nothing_left(environments: Path, folder: Path, recorder: int) -> None:
    for line in (environments / RELEASE / "bin" / "seen").read_text().splitlines():
        with pytest.raises(ProcessLookupError):
            os.kill(int(line.split()[0]), 0)
    assert not (SHM_DIR / f"lmcache_l1_pool_golden{recorder}").exists()
    assert not list(folder.glob(".*"))


def untouched(folder: Path) -> bool:
    return [path.name for path in folder.iterdir()] == ["INDEX.json"]


@pytest.mark.timeout(150)
def test_records_every_session_of_a_release(environments: Path, folder: Path) -> None:
    with recording(environments, RELEASE, "--into", str(folder)) as process:
        out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, err
    assert err == ""
    names = [f"v057rc2_{way}_single_group" for way in (
        "lmcache_driven", "engine_driven_shm", "engine_driven_envelope"
    )]  # fmt: skip
    assert [line.split(":")[0] for line in out.splitlines()] == names
    index = json.loads((folder / "INDEX.json").read_text())
    assert index["note"] == "n"
    assert list(index["files"]) == ["v056_x.json", *sorted(f"{name}.json" for name in names)]
    for name in names:
        check_file(folder / f"{name}.json", index["files"][f"{name}.json"])
    assert_nothing_left(environments, folder, process.pid)


def check_file(path: Path, entry: dict[str, Any]) -> None:
    messages = json.loads(path.read_text())
    assert all(list(m) == ["direction", "conn", "op", "frames"] for m in messages)
    requests = [m for m in messages if m["direction"] == "request"]
    replies = [m for m in messages if m["direction"] == "response"]
    assert {m["conn"] for m in messages} >= {0}
    assert entry == {
        "release": RELEASE,
        "server": entry["server"],
        "client": entry["client"],
        "messages": len(messages),
        "request_ops": [m["op"] for m in requests],
        "bytes": path.stat().st_size,
    }
    asked = {(m["conn"], m["frames"][0]): m for m in requests}
    assert len(asked) == len(requests) == len(replies)
    order = [(m["conn"], m["frames"][0], m["direction"]) for m in messages]
    for m in replies:
        sent = asked[m["conn"], m["frames"][0]]
        assert (sent["op"], sent["frames"][1]) == (m["op"], m["frames"][1])
        place = (m["conn"], m["frames"][0])
        assert order.index((*place, "request")) < order.index((*place, "response"))
    dialect = dialect_of(RELEASE)
    for m in requests:
        frames = [bytes.fromhex(frame) for frame in m["frames"]]
        assert codec.decode_request(dialect, frames).op is Op(m["op"])


@pytest.mark.parametrize(
    ("bench", "text"),
    [
        ("print('no luck'); sys.exit(3)", "the client ended with code 3, expected 0: no luck"),
        ("sys.exit(0)", "the client sent no retrieve: "),
        (
            "import zmq; s = zmq.Context().socket(zmq.DEALER); s.connect(options['--rpc-url']);"
            " s.send_multipart([b'0', b'99']); s.poll(20000)",
            "the proxy stopped: ",
        ),
    ],
)
def test_a_session_worth_nothing_is_not_written(
    environments: Path, folder: Path, bench: str, text: str
) -> None:
    install(environments, bench)
    with recording(environments, RELEASE, "--into", str(folder)) as process:
        out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (1, ""), err
    assert err.startswith("record_golden: error: v057rc2_lmcache_driven_single_group: ")
    assert text in err
    assert "Traceback" not in err
    assert untouched(folder)
    assert_nothing_left(environments, folder, process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_processes(
    environments: Path, folder: Path, number: signal.Signals
) -> None:
    install(environments, "import time; time.sleep(60)")
    seen = environments / RELEASE / "bin" / "seen"
    with recording(environments, RELEASE, "--into", str(folder)) as process:
        deadline = time.monotonic() + WITHIN_S
        while not (seen.exists() and " bench" in seen.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (130, "")
    assert err == "record_golden: stopped; nothing was written\n"
    assert untouched(folder)
    assert_nothing_left(environments, folder, process.pid)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("0.5.66",), "'0.5.66' is not a release that can be started here, expected one of 0.4.6,"),
        (("0.4.6",), "the bench of lmcache 0.4.6 needs a GPU: there is nothing to record"),
        (("0.5.5",), "no lmcache 0.5.5 in "),
        ((RELEASE, "--into", "/dev/null"), "/dev/null has no INDEX.json"),
        ((RELEASE, "more"), "more"),
        ((), "RELEASE"),
    ],
)
def test_wrong_usage_is_one_line(
    environments: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    text: str,
) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(arguments, environments)
    assert raised.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("record_golden: error: ")
    assert text in err
    assert err.count("\n") == 1


def test_the_script_says_the_same() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "record_golden"), "0.5.66"]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("record_golden: error: '0.5.66' is not a release")


@pytest.mark.parametrize("release", [release.name for release in RELEASES])
def test_every_session_of_every_release_is_recorded(release: str) -> None:
    names = [s.name for s in sessions_of(release_named(release), dialect_of(release))]
    start = f"v{release.replace('.', '')}_"
    assert set(names) <= {path.stem for path in GOLDEN.glob(f"{start}*.json")}
