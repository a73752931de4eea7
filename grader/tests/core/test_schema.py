"""The record as JSON: what is written obeys the published schema and is read back as it was."""

from __future__ import annotations

import json
from functools import cache

import pytest
from jsonschema_rs import Draft202012Validator, meta

from grader import pipeline
from grader.assignment import case_files
from grader.core import record
from grader.core.record import Record, from_json, to_json
from grader.labs.paged_kv.lab import lab
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import SAMPLES, grade

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
