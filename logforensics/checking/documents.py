"""The result of a check for other programs (JSON) and for a README (Markdown)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from logforensics import __version__
from logforensics.checking.fixtures import STATES, Checked
from logforensics.checking.report import FIGURES, figures, summary
from logforensics.checking.score import Row, score

SCHEMA_ID = "logforensics.check/1"


def to_json(results: Sequence[Checked]) -> dict[str, Any]:
    """Return the results as plain JSON values. Keys may be added within schema version 1, never change meaning."""
    counts = score(results)
    states = [result.state for result in results]
    return {
        "schema": SCHEMA_ID,
        "version": __version__,
        "counts": {"fixtures": len(states), **{state: states.count(state) for state in STATES}},
        "confidence_high": {"verdicts": counts.sure, "wrong": counts.surely_wrong},
        "by_strategy": {row.name: _counts(row) for row in counts.by_strategy},
        "by_confidence": {row.name: _counts(row) for row in counts.by_confidence},
        "by_category": {row.name: _counts(row) for row in counts.by_category},
        "fixtures": [_fixture(result) for result in results],
    }


def json_text(results: Sequence[Checked]) -> str:
    """Return ``to_json`` as text. Half of a surrogate pair, which a log can hold, is escaped as JSON does."""
    text = json.dumps(to_json(results), indent=1, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


def _counts(row: Row) -> dict[str, Any]:
    return {"right": row.right, "known": row.known, "wrong": row.wrong, "of": row.total}


def _fixture(result: Checked) -> dict[str, Any]:
    truth, comparison = result.truth, result.comparison
    return {
        "name": result.fixture.name,
        "strategy": result.strategy,
        "category": truth.category if truth else None,
        "state": result.state,
        "confidence": comparison.confidence if comparison else None,
        "differences": [
            {"key": each.key, "expected": each.expected, "said": each.said}
            for each in (comparison.differences if comparison else ())
        ],
        "known_failure": truth.known_failure if truth else None,
        "problem": result.problem or None,
    }


def to_markdown(results: Sequence[Checked]) -> str:
    """Return the accuracy by strategy, category and confidence as Markdown tables, with the counts in words below."""
    counts = score(results)
    parts = [
        _table("strategy", (*counts.by_strategy, counts.total)),
        _table("category", (*counts.by_category, counts.total)),
        _table("confidence", (*counts.by_confidence, counts.total)),
        "\n".join(f"- {line}" for line in summary(counts)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(title: str, rows: Sequence[Row]) -> str:
    lines = [f"| {' | '.join((title, *FIGURES))} |", f"| --- |{' ---: |' * len(FIGURES)}"]
    for row in rows:
        name = row.name.replace("|", "\\|")
        lines.append(f"| {' | '.join((name, *figures(row)))} |")
    return "\n".join(lines)
