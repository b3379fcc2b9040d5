"""The JSON report is the contract: its keys, its types, its times."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from render_samples import HOSTILE, START, event, hostile, huge, ordinary

from logforensics import __version__
from logforensics.model import CATEGORIES, CONFIDENCES, FATES, PHASES, ROLES, STATUSES
from logforensics.render.json_report import SCHEMA_ID, schema, to_json


def strict(part: Any) -> Any:
    """The same schema, but with every key that it does not declare forbidden: what this version may write."""
    if isinstance(part, list):
        return [strict(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {key: strict(value) for key, value in part.items()}
    declared = part.get("properties")
    if isinstance(declared, dict) and "type" in part and list(declared) != ["rank"]:  # a mismatch has keys of its own
        closed["additionalProperties"] = False
    return closed


@pytest.mark.parametrize("make", [ordinary, huge, hostile])
def test_every_report_is_valid_by_the_shipped_schema(make):
    report = json.loads(json.dumps(to_json(make())))

    Draft202012Validator(schema()).validate(report)


def test_no_undeclared_key_is_written():
    Draft202012Validator(strict(schema())).validate(to_json(ordinary()))


def test_the_schema_itself_is_sound_and_names_its_version():
    Draft202012Validator.check_schema(schema())

    assert schema()["properties"]["schema"] == {"const": SCHEMA_ID}


def test_the_schema_speaks_the_models_vocabulary():
    table = schema()
    verdict = table["properties"]["verdict"]["properties"]

    assert list(CATEGORIES) == table["$defs"]["category"]["enum"]
    assert list(STATUSES) == verdict["status"]["enum"]
    assert list(PHASES) == verdict["phase"]["enum"]
    assert list(CONFIDENCES) == verdict["confidence"]["enum"]
    assert list(FATES) == table["properties"]["ranks"]["items"]["properties"]["fate"]["enum"]
    assert list(ROLES) == table["properties"]["first_exceptions"]["items"]["properties"]["role"]["enum"]


@pytest.mark.parametrize(
    "path",
    [
        "schema",
        "verdict.headline",
        "verdict.remedies",
        "run.sources",
        "ranks.0.fate",
        "first_exceptions.0.lead_time_s",
    ],
)
def test_a_missing_key_is_refused(path):
    report = copy.deepcopy(to_json(ordinary()))
    *steps, last = path.split(".")
    place: Any = report
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    del place[last]

    assert not Draft202012Validator(schema()).is_valid(report)


def test_the_keys_are_those_of_the_contract():
    report = to_json(ordinary())

    assert list(report) == [
        "schema", "version", "verdict", "first_exceptions", "ranks", "chain", "collectives", "attempts", "run",
    ]  # fmt: skip
    assert report["schema"] == "logforensics.analysis/1"
    assert report["version"] == __version__
    assert {"status", "category", "ranks", "nodes", "phase", "confidence", "headline", "explanation", "evidence"} | {
        "alternatives", "missing", "advice", "remedies", "rules", "rulings",
    } == set(report["verdict"])  # fmt: skip
    assert report["run"]["sources"][0] == {"name": "logs/rank1.log", "size": 1234, "kind": "log", "events": 1}


def test_times_are_iso_utc_or_null():
    report = to_json(ordinary())

    assert report["first_exceptions"][0]["time"] == "2026-05-28T20:26:40.000000Z"
    assert report["verdict"]["evidence"][1]["time"] is None
    assert report["collectives"][0]["issued"] == "2026-05-28T20:26:40.000000Z"


def test_a_time_outside_the_calendar_is_null():
    analysis = ordinary()
    analysis.ranks[0].last_seen_us = 1 << 62

    assert to_json(analysis)["ranks"][0]["last_seen"] is None


def test_lead_times_count_to_the_first_timeout_of_the_attempt():
    analysis = ordinary()

    assert [item["lead_time_s"] for item in to_json(analysis)["first_exceptions"]] == [600.0, 0.0, -0.01]


def test_without_a_timeout_the_lead_time_is_null():
    analysis = ordinary()
    analysis.first_exceptions = [event(1, "ValueError", 0)]
    analysis.events = analysis.first_exceptions

    assert to_json(analysis)["first_exceptions"][0]["lead_time_s"] is None


def test_log_text_stays_text_and_the_document_stays_valid_utf8():
    report = to_json(hostile())

    json.dumps(report, ensure_ascii=False).encode("utf-8")
    assert "<script>" in report["verdict"]["headline"]
    assert "\udc80" in HOSTILE and "\udc80" not in report["verdict"]["headline"]


def test_a_chain_step_that_no_line_tells_of_has_no_event():
    assert [link["event_id"] for link in to_json(ordinary())["chain"]] == [0, None]
    assert START == 1_780_000_000_000_000
