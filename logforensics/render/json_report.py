"""The analysis as JSON: the contract ``logforensics.analysis/1`` that other programs read.

Keys may be added within version 1, never change meaning; ``schema/analysis-1.schema.json`` in this package
says the same to machines. Times are ISO 8601 in UTC with Z, or null when unknown.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from logforensics import __version__
from logforensics.model import AttemptVerdict, Event, Evidence, RankState, Verdict
from logforensics.render.run_facts import (
    first_timeouts,
    launcher_of,
    lead_seconds,
    nodes_of,
    ranks_seen,
    strategy_of,
    versions_of,
)
from logforensics.render.text import iso_time

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

# Between quotes of a JSON document these may stand bare; json itself escapes only what is below U+0020.
_INVISIBLE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

SCHEMA_ID = "logforensics.analysis/1"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of ``to_json``'s result."""
    text = (files("logforensics") / "schema" / "analysis-1.schema.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis as plain JSON values, exactly by the contract of schema version 1."""
    timeouts = first_timeouts(analysis.events)
    report: dict[str, Any] = _sound(
        {
            "schema": SCHEMA_ID,
            "version": __version__,
            "verdict": _verdict(analysis.verdict),
            "first_exceptions": [_exception(event, timeouts.get(event.attempt)) for event in analysis.first_exceptions],
            "ranks": [_rank(state) for state in analysis.ranks],
            "chain": [
                {
                    "event_id": link.event_id if link.event_id >= 0 else None,
                    "rank": link.rank,
                    "time": iso_time(link.time_us),
                    "what": link.what,
                    "because": link.because,
                }
                for link in analysis.chain
            ],
            "collectives": [
                {
                    "process_group": state.process_group,
                    "sequence": state.sequence,
                    "operation": state.operation,
                    "waiting": state.waiting,
                    "absent": state.absent,
                    "mismatched": state.mismatched,
                    "issued": iso_time(state.issued_us),
                }
                for state in analysis.collectives
            ],
            "attempts": [_attempt(item) for item in analysis.attempts],
            "run": _run(analysis),
        }
    )
    return report


def json_text(analysis: Analysis) -> str:
    """Return the report as a document."""
    return escaped(json.dumps(to_json(analysis), indent=1, ensure_ascii=False)) + "\n"


def escaped(document: str) -> str:
    """Return JSON with the characters escaped that steer a terminal or turn text around; it means the same."""
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "status": verdict.status,
        "category": verdict.category,
        "ranks": verdict.ranks,
        "nodes": verdict.nodes,
        "phase": verdict.phase,
        "confidence": verdict.confidence,
        "headline": verdict.headline,
        "explanation": verdict.explanation,
        "evidence": [_place(item) for item in verdict.evidence],
        "alternatives": [
            {"category": item.category, "ranks": item.ranks, "why_less_likely": item.why_less_likely}
            for item in verdict.alternatives
        ],
        "missing": verdict.missing,
        "advice": verdict.advice,
        "remedies": [
            {"id": item.id, "title": item.title, "steps": item.steps, "commands": item.commands}
            for item in verdict.remedies
        ],
        "rules": verdict.rules,
        "rulings": [
            {"rule": item.rule, "said": item.said, "ranks": item.ranks, "decided": item.decided}
            for item in verdict.rulings
        ],
    }


def _place(evidence: Evidence) -> dict[str, Any]:
    return {
        "source": evidence.source,
        "line": evidence.line,
        "end_line": evidence.end_line,
        "rank": evidence.rank,
        "node": evidence.node,
        "time": iso_time(evidence.time_us),
        "text": evidence.text,
    }


def _attempt(attempt: AttemptVerdict) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "status": attempt.status,
        "category": attempt.category,
        "ranks": attempt.ranks,
        "phase": attempt.phase,
        "confidence": attempt.confidence,
        "headline": attempt.headline,
        "evidence": _place(attempt.evidence) if attempt.evidence else None,
        "start": iso_time(attempt.start_us),
        "end": iso_time(attempt.end_us),
        "last_step": attempt.last_step,
    }


def _exception(event: Event, timeout: Event | None) -> dict[str, Any]:
    return {
        "rank": event.rank,
        "node": event.node,
        "time": iso_time(event.time_us),
        "lead_time_s": lead_seconds(event, timeout),
        "category": event.category,
        "role": event.role,
        "message": event.message,
        "source": event.source,
        "line": event.line,
    }


def _rank(state: RankState) -> dict[str, Any]:
    return {
        "rank": state.rank,
        "node": state.node,
        "local_rank": state.local_rank,
        "pid": state.pid,
        "fate": state.fate,
        "why": state.why,
        "last_step": state.last_step,
        "last_seen": iso_time(state.last_seen_us),
        "exit_code": state.exit_code,
        "signal": state.signal,
    }


def _run(analysis: Analysis) -> dict[str, Any]:
    counts = Counter(event.source for event in analysis.events)
    return {
        "world_size": analysis.identity.world_size,
        "nodes": nodes_of(analysis),
        "ranks_seen": ranks_seen(analysis),
        "attempts": max(1, len(analysis.attempts)),
        "launcher": launcher_of(analysis),
        "strategy": strategy_of(analysis),
        "versions": versions_of(analysis),
        "sources": [
            {"name": source.name, "size": source.size, "kind": source.kind, "events": counts[source.name]}
            for source in analysis.sources
        ],
        "skipped": [{"source": note.source, "what": note.what} for note in analysis.notes],
    }


def _sound(value: Any) -> Any:
    """Replace lone surrogates (bytes that were no UTF-8): a strict reader would refuse the whole document."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    return value
