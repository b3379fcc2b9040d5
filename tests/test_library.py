"""The package as a library: one call, and an answer with names that other programs may rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from inputs import ROOT, SHAPE, SHAPE_LOG, SHAPE_TRUTH, write

import logforensics
from logforensics import analyze
from logforensics.analysis import cache_folder
from logforensics.model import CATEGORIES, KINDS, ROLES, STREAMS, TIME_BASES
from logforensics.patterns import is_own
from logforensics.signatures import SignatureError
from logforensics.sources import InputError

LOGS = SHAPE / "logs"
# The public columns of the timeline, in their order.
COLUMNS = {
    "event_id": pl.UInt32, "source": pl.Categorical, "line": pl.UInt64, "end_line": pl.UInt64, "offset": pl.UInt64,
    "attempt": pl.Int16, "node": pl.Categorical, "rank": pl.Int32, "local_rank": pl.Int16, "pid": pl.Int64,
    "stream": pl.Enum(STREAMS), "time": pl.Datetime("us", "UTC"), "time_basis": pl.Enum(TIME_BASES),
    "time_error_us": pl.Int64, "kind": pl.Enum(KINDS), "signature": pl.Categorical, "role": pl.Enum(ROLES),
    "category": pl.Enum(CATEGORIES), "process_group": pl.String, "sequence": pl.Int64, "operation": pl.String,
    "message": pl.String, "fields": pl.String, "repeats": pl.UInt32,
}  # fmt: skip


def test_one_call_gives_the_verdict_the_timeline_and_the_ranks():
    analysis = analyze([LOGS])

    assert (analysis.verdict.status, analysis.verdict.category) == (SHAPE_TRUTH["status"], SHAPE_TRUTH["category"])
    assert analysis.verdict.ranks == SHAPE_TRUTH["ranks"]
    assert SHAPE_TRUTH["evidence"] in analysis.verdict.evidence[0].text
    assert {state.rank: state.fate for state in analysis.ranks}[1] == "origin"
    assert isinstance(analysis, logforensics.Analysis)


def test_the_timeline_has_the_public_columns():
    timeline = analyze(LOGS).timeline

    assert dict(timeline.schema) == COLUMNS
    assert timeline["event_id"].to_list() == list(range(timeline.height))
    assert timeline["line"].min() >= 1 and (timeline["end_line"] >= timeline["line"]).all()


def test_an_event_is_where_the_timeline_says(tmp_path):
    """Offsets count bytes, lines count from 1; both lead to the line that the message was taken from."""
    write(tmp_path, {"train.log": SHAPE_LOG})
    lines = SHAPE_LOG.splitlines(keepends=True)
    failed = analyze(tmp_path).timeline.filter(pl.col("role") == "cause").row(0, named=True)

    assert SHAPE_LOG[failed["offset"] :].startswith(lines[failed["line"] - 1])
    assert failed["message"].encode() in lines[failed["line"] - 1]


def test_a_timeline_without_events_has_the_same_columns(tmp_path):
    assert dict(analyze(write(tmp_path, {"a.log": b""})).timeline.schema) == COLUMNS


@pytest.mark.parametrize("given", [str(LOGS), LOGS, [LOGS], (str(LOGS),), iter([LOGS]), [LOGS / "train.log"]])
def test_paths_may_be_given_in_every_usual_way(given):
    assert analyze(given).verdict.ranks == SHAPE_TRUTH["ranks"]


def test_evidence_leads_to_its_event_and_to_the_lines_around(tmp_path):
    analysis = analyze(LOGS)
    evidence = analysis.verdict.evidence[0]

    assert analysis.event(evidence.event_id).line == evidence.line
    excerpt = dict(analysis.excerpts[evidence.event_id])
    assert excerpt[evidence.line] == evidence.text
    lines = SHAPE_LOG.decode().splitlines()
    assert set(excerpt) == set(range(evidence.line - 3, evidence.line + 3))
    assert all(text == lines[number - 1] for number, text in excerpt.items())


def test_progress_counts_the_bytes_up_to_all_of_them():
    told: list[tuple[int, int]] = []
    analyze(LOGS, progress=lambda done, total: told.append((done, total)))

    size = len(SHAPE_LOG)
    assert told[-1] == (size, size) and told == sorted(told)


def test_the_cache_is_used_where_it_is_wanted(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGFORENSICS_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"

    analyze(LOGS, use_cache=False)
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_others_can_write_is_not_trusted(tmp_path):
    """What it holds is unpickled."""
    own = write(tmp_path, {"patterns.bin": b"x"}) / "patterns.bin"
    for mode, trusted in ((0o600, True), (0o644, True), (0o664, False), (0o646, False)):
        own.chmod(mode)
        assert is_own(own) == trusted


def test_what_cannot_be_used_raises_what_the_docstring_says(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        analyze(tmp_path / "nothing")
    with pytest.raises(InputError, match="is no time"):
        analyze(LOGS, since="yesterday")
    with pytest.raises(SignatureError, match="no such folder"):
        analyze(LOGS, parsers=tmp_path / "nothing")


def test_results_outlive_what_was_unpacked(tmp_path):
    import gzip

    write(tmp_path, {"train.log.gz": gzip.compress(SHAPE_LOG)})
    packed, plain = analyze(tmp_path), analyze(LOGS)

    assert packed.timeline["line"].equals(plain.timeline["line"])
    assert packed.timeline["end_line"].equals(plain.timeline["end_line"])


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = logforensics.nonsense  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, logforensics; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout

    assert not {"polars", "regex", "typer", "rich", "jinja2", "torch"} & set(loaded.split())


def test_the_types_of_the_public_names_are_declared():
    assert (Path(logforensics.__file__).parent / "py.typed").is_file()
    for name in ("analyze", "Analysis", "__version__"):
        assert name in logforensics.__all__
    assert ROOT.joinpath("pyproject.toml").read_text().count('"Typing :: Typed"') == 1
