"""The record as JSON: what is written obeys the published schema and is read back as it was."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError, meta

from grader import pipeline
from grader.assignment import case_files
from grader.core import record
from grader.core.record import Environment, Protection, Record, from_json, to_json
from grader.labs.paged_kv.lab import lab
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.handmade import outcome, record_of, secret_record
from grader.tests.support.same_result import same_result

KINDS = (
    "accepted/yoda_crlf",
    "compile_error/sign_compare",
    "compile_error/main_with_test",
    "memory_error/destroy_frees_pool",
    "memory_leak/free_keeps_l2_tables",
    "run_time_error/destroy_null_unchecked",
    "wrong_answer/all_null",
)


@cache
def graded(sample: str) -> Record:
    """The record of a sample on a few cases of every folder."""
    cases = case_files.load_folder(lab().cases, lab().grammar, seed=1, pattern="destroy/*")
    return pipeline.grade(SAMPLES / sample, lab(), cases, GradingOptions(seed=1))


@cache
def validator() -> Draft202012Validator:
    """What the published schema demands."""
    return Draft202012Validator(record.schema())


def test_the_published_schema_is_one() -> None:
    """It says which dialect it is written in, and it is what `grade schema` prints."""
    said = grade("schema")

    assert said.code == 0
    assert json.loads(said.out) == record.schema()
    assert record.schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    meta.validate(record.schema())


@pytest.mark.parametrize("sample", KINDS)
def test_real_records_obey_it_and_come_back(sample: str) -> None:
    """Of every verdict: valid, and nothing is lost on the way."""
    made = graded(sample)
    text = to_json(made)

    validator().validate(json.loads(text))
    assert from_json(text) == made
    assert to_json(from_json(text)) == text
    assert text.endswith("}\n")


def test_records_made_by_hand_obey_it_and_come_back() -> None:
    """Every field that may be filled, one without a score, one of a folder that lacks the file."""
    for made in (secret_record(outcome("append/x")), record_of(), replace(record_of(), score=None, would_score=3)):
        validator().validate(json.loads(to_json(made)))

        assert from_json(to_json(made)) == made


def test_odd_text_comes_back(tmp_path: Path) -> None:
    """A folder's name and a program's output may hold anything that UTF-8 can."""
    made = replace(record_of(), output='\x00\x1b[31m"\\ \u2028 🙂\ufffd', submission=record.Submission(name="a\nb"))
    record.write(tmp_path / "r.json", to_json(made))

    assert from_json((tmp_path / "r.json").read_bytes()) == made


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    """There is no hash of what is not there, and the record is valid all the same."""
    every = case_files.load_folder(lab().cases, lab().grammar, seed=1)
    made = pipeline.grade(tmp_path, lab(), every, GradingOptions(seed=1))

    validator().validate(json.loads(to_json(made)))
    assert made.submission.sha256 == ""
    assert made.score == 0
    assert made.max_score == 100


def test_the_command_line_prints_such_a_record() -> None:
    """And nothing beside it."""
    said = grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW, "--format", "json")

    validator().validate(json.loads(said.out))
    assert said.err == ""


def _broken(kind: str) -> dict[str, Any]:
    value: dict[str, Any] = copy.deepcopy(json.loads(to_json(graded("memory_leak/free_keeps_l2_tables"))))
    match kind:
        case "verdict":
            value["verdict"] = "good"
        case "score":
            value["score"] = "many"
        case "missing":
            del value["submission"]
        case "finding":
            value["findings"][0]["verdict"] = "bad"
        case "outcome":
            value["outcomes"][0]["visibility"] = "secret"
    return value


@pytest.mark.parametrize("kind", ["verdict", "score", "missing", "finding", "outcome"])
def test_what_is_no_record_is_refused(kind: str) -> None:
    """By the schema and by our own reader: closed sets are closed in both."""
    with pytest.raises(ValidationError):
        validator().validate(_broken(kind))
    with pytest.raises(ValueError, match=r".+"):
        from_json(json.dumps(_broken(kind)))


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{", '{"lab": 3}'])
def test_what_is_no_json_object_of_ours_is_a_value_error(text: str) -> None:
    """A file that was cut, or another one."""
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


def test_two_gradings_agree_on_everything_but_machine_and_time() -> None:
    """And two different results do not."""
    one = graded("memory_leak/free_keeps_l2_tables")
    cases = case_files.load_folder(lab().cases, lab().grammar, seed=1, pattern="destroy/*")
    again = pipeline.grade(SAMPLES / "memory_leak" / "free_keeps_l2_tables", lab(), cases, GradingOptions(seed=1))
    elsewhere = replace(one, environment=Environment(kernel="x"), protection=Protection(), cpu_seconds={"build": 9.0})

    assert same_result(one, again)
    assert same_result(one, elsewhere)
    assert not same_result(one, replace(one, score=0))
    assert not same_result(one, replace(one, findings=()))


@pytest.mark.parametrize("sample", ["compile_error/helper_from_other_file", "compile_error/sign_compare"])
def test_two_failing_builds_agree_too(sample: str) -> None:
    """No name of a temporary folder stands in what gcc and the linker say."""
    cases = case_files.load_folder(lab().cases, lab().grammar, seed=1, pattern="destroy/*")
    again = pipeline.grade(SAMPLES / sample, lab(), cases, GradingOptions(seed=1))

    assert same_result(graded(sample), again)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no half of a new one beside it."""
    path = tmp_path / "r.json"
    path.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        record.write(path, "new")

    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
