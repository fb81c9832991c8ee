"""Trace files: read as a stream, and whatever is wrong in them is one line with its number."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import benchserver.load.tracefile as tracefile
from benchserver.errors import UsageError
from benchserver.load.tracefile import MAX_INPUT_TOKENS, MAX_LINE_BYTES, Entry, TraceFile

GOOD = {"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}


def written(path: Path, *lines: str | bytes) -> TraceFile:
    """Return a trace of such lines."""
    raw = (line if isinstance(line, bytes) else line.encode() for line in lines)
    path.write_bytes(b"".join(raw))
    return TraceFile(str(path))


def line_of(**fields: Any) -> str:
    return json.dumps({**GOOD, **fields}) + "\n"


def refused(trace: TraceFile) -> str:
    with pytest.raises(UsageError) as caught:
        list(trace.entries())
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 500 + len(trace.path)
    return text


def test_entries_are_what_stands_in_the_lines(tmp_path: Path) -> None:
    trace = written(
        tmp_path / "trace.jsonl",
        '{"timestamp": 0, "input_length": 513, "output_length": 0, "hash_ids": [7, 8]}\n',
        "\n",
        '{"hash_ids":[9],"timestamp":1.5,"input_length":1,"output_length":3,"more":{}}',
    )
    assert list(trace.entries()) == [
        Entry(timestamp_ms=0.0, input_tokens=513, hash_ids=(7, 8)),
        Entry(timestamp_ms=1.5, input_tokens=1, hash_ids=(9,)),
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"timestamp": -1}, "timestamp is -1, expected 0 to 1e+15 milliseconds"),
        ({"timestamp": 4}, "timestamp 4 comes before 5 of the line above: sort the file"),
        ({"timestamp": float("nan")}, "timestamp is nan, expected 0 to"),
        ({"timestamp": float("inf")}, "timestamp is inf, expected 0 to"),
        ({"timestamp": "5"}, 'timestamp is "5", expected milliseconds'),
        ({"timestamp": True}, "timestamp is True, expected milliseconds"),
        ({"input_length": -600}, "input_length is -600, expected a whole number from 1 to"),
        ({"input_length": 0}, "input_length is 0, expected a whole number"),
        ({"input_length": 600.0}, "input_length is 600.0, expected a whole number"),
        ({"input_length": MAX_INPUT_TOKENS + 1}, f"from 1 to {MAX_INPUT_TOKENS}"),
        ({"output_length": -1}, "output_length is -1, expected a whole number of tokens"),
        ({"hash_ids": "0, 1"}, 'hash_ids is "0, 1", expected a list of whole numbers'),
        ({"hash_ids": [0]}, "1 hash_ids, expected 2: one for each 512 tokens of input_length 600"),
        ({"hash_ids": [0, 1, 2]}, "3 hash_ids, expected 2"),
        ({"hash_ids": [0, -1]}, "-1 in hash_ids, expected a whole number, at least 0"),
        ({"hash_ids": [0, "x" * 900]}, "... in hash_ids, expected a whole number"),
        ({"hash_ids": [0, [1]]}, "a list in hash_ids"),
        ({"hash_ids": {"0": 1}}, "hash_ids is an object, expected a list"),
        ({"hash_ids": list(range(100_000))}, "100000 hash_ids, expected 2"),
        ({"hash_ids": list(range(1_000_000))}, f"longer than {MAX_LINE_BYTES} bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_file_and_line(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    trace = written(tmp_path / "trace.jsonl", line_of(), line_of(**fields), line_of())
    text = refused(trace)
    assert text.startswith(f"--workload trace:{trace.path}, line 2: ")
    assert words in text


@pytest.mark.parametrize("key", GOOD)
def test_every_field_is_needed(tmp_path: Path, key: str) -> None:
    document = {name: value for name, value in GOOD.items() if name != key}
    text = refused(written(tmp_path / "trace.jsonl", json.dumps(document)))
    assert f"line 1: {key} is missing" in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing\n", "not a JSON object"),
        ("[1, 2]\n", "a list is not a JSON object"),
        ("null\n", "None is not a JSON object"),
        (b"\xff\xfe\n", "not a JSON object"),
        (b"\x00\n", "not a JSON object"),
        ("[" * 100_000 + "\n", "not a JSON object"),
        ('{"timestamp": ' + "9" * 5000 + "}\n", "not a JSON object"),
        ("\ufeff" + line_of(), "not a JSON object"),
        (line_of()[:40], "not a JSON object, and it has no end: the file may be torn"),
        ("x" * (MAX_LINE_BYTES + 1), "longer than"),
    ],
    ids=range(10),
)
def test_what_is_no_object_is_said_with_its_line(
    tmp_path: Path, line: str | bytes, words: str
) -> None:
    text = refused(written(tmp_path / "trace.jsonl", line_of(), line_of(), line))
    assert "trace.jsonl, line 3: " in text
    assert words in text


def test_a_line_torn_in_the_middle_is_found_before_the_run(tmp_path: Path) -> None:
    trace = written(tmp_path / "trace.jsonl", line_of(), line_of()[:30] + "\n", line_of())
    assert "line 2: not a JSON object" in refused(trace)


def test_a_line_of_any_length_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A file of 10 GB without a line end: it has no bytes on the disk, and none is loaded."""
    path = tmp_path / "trace.jsonl"
    path.touch()
    os.truncate(path, 10 << 30)
    assert f"line 1: longer than {MAX_LINE_BYTES} bytes" in refused(TraceFile(str(path)))


def test_only_so_many_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracefile, "MAX_LINES", 3)
    path = tmp_path / "trace.jsonl"
    assert len(list(written(path, *[line_of()] * 3).entries())) == 3
    text = refused(written(path, *[line_of()] * 4))
    assert text.endswith("trace.jsonl: more than 3 lines; use a part of it, as by head -n")


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    assert refused(TraceFile(str(tmp_path / "none"))).endswith("none: No such file or directory")
    assert refused(TraceFile("")).endswith("trace:: No such file or directory")
    assert refused(TraceFile(str(tmp_path))).endswith(": Is a directory")
    assert refused(TraceFile("a\0b")).endswith(": not the name of a file")
    assert refused(TraceFile("/dev/zero")).endswith(
        "/dev/zero: not a regular file: a trace is read twice"
    )


def test_nobody_waits_for_the_writer_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(TraceFile(str(tmp_path / "pipe")))


def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    trace = written(tmp_path / "trace.jsonl", line_of())
    Path(trace.path).chmod(0)
    if os.access(trace.path, os.R_OK):
        pytest.skip("this user may read everything")
    assert refused(trace).endswith("trace.jsonl: Permission denied")


def test_a_file_that_fails_while_it_is_read_is_said() -> None:
    assert refused(TraceFile("/proc/self/mem")).endswith("/mem: Input/output error")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-2, 5), max_size=5),
)


@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.sampled_from([*GOOD, "other"]), VALUES).map(json.dumps),
            st.builds(lambda at, n: line_of(timestamp=at, input_length=n), VALUES, VALUES),
            st.binary(max_size=20),
        ),
        max_size=6,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_a_trace_or_one_line(tmp_path: Path, lines: list[str | bytes]) -> None:
    trace = written(tmp_path / "trace.jsonl", *lines)
    error, found = "", list[Entry]()
    try:
        found = list(trace.entries())
    except UsageError as refusal:
        error = str(refusal)
    assert error.isprintable()
    stamps = [entry.timestamp_ms for entry in found]
    assert stamps == sorted(stamps)
    assert all(len(entry.hash_ids) == -(-entry.input_tokens // 512) for entry in found)
