"""The schema of reports, and that a report beside it is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from benchserver.report.files import JSON_FORMAT
from benchserver.section import RECORD_KEYS, REPORT_KEYS
from tests.benchserver.page.documents import run_document
from tests.reportschema import check_report, check_reports_in, validator


def test_the_schema_is_one_and_is_what_the_documents_publish() -> None:
    schema: Any = validator().schema
    published = Path(__file__).parents[1] / "docs" / "report.schema.json"
    assert json.loads(published.read_text()) == schema
    assert schema["properties"]["format"] == {"const": JSON_FORMAT}
    assert set(schema["required"]) == set(REPORT_KEYS)
    assert set(schema["properties"]) >= REPORT_KEYS | RECORD_KEYS


@pytest.mark.parametrize("record", [False, True])
def test_a_report_that_is_none_is_found_wherever_it_lies(record: bool, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    bad = {"format": 1, "checks": {}, "replay": "", "surprise": 3}
    path = tmp_path / "deep" / "run.json"
    path.write_text(json.dumps({"report": bad} if record else bad))
    with pytest.raises(AssertionError, match=r"run\.json: "):
        check_reports_in(tmp_path)
    path.unlink()
    (tmp_path / "other.json").write_text("[")
    check_reports_in(tmp_path)


def test_a_key_or_a_verdict_that_nobody_knows_is_found() -> None:
    for wrong in ({"verdict": "good"}, {"checks": {"a": {"verdict": "valid"}}}, {"replay": 3}):
        with pytest.raises(AssertionError):
            check_report({**run_document(), **wrong})


def test_what_of_the_record_could_not_be_read_in_time_is_allowed() -> None:
    schema: Any = validator().schema
    unread = {"unread": "not known: reading it took more than 0.1 s"}
    software = schema["$defs"]["run"]["properties"]["software"]
    for part in (software, schema["$defs"]["environment"]):
        one = Draft202012Validator({"$defs": schema["$defs"], **part})
        assert one.is_valid(unread)
        assert not one.is_valid({"surprise": 3})
