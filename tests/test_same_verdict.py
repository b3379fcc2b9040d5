"""The same run is the same run however its logs are handed over: in any order, put together, split, or merged by time."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforensics import analyze
from logforensics.checking.fixtures import Fixture, find_fixtures
from logforensics.model import Verdict

ROOT = Path(__file__).parents[1] / "fixtures"
# Where a launcher or a person put one rank's output, on one node.
_RANK_FILE = re.compile(r"(?:attempt_0/|(?:^|/)rank_?)(\d+)(?:/(?:stdout|stderr)\.log|\.(?:log|out|err))$")
_STAMP = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[ T]|[IWEF](\d\d)(\d\d) )(\d\d:\d\d:\d\d[.,]\d{3})")


@dataclass(frozen=True)
class Line:
    source: str
    rank: int | None
    stamp: str | None
    text: str


def _logs(fixture: Fixture) -> Path:
    return fixture.folder / "logs"


def _rank_of(name: str) -> int | None:
    found = _RANK_FILE.search(name)
    return int(found[1]) if found else None


def _stamp_of(text: str) -> str | None:
    found = _STAMP.search(text)
    if found is None:
        return None
    _year, month, day, glog_month, glog_day, time = found.groups()
    return f"{month or glog_month}-{day or glog_day} {time.replace(',', '.')}"


def _files(fixture: Fixture) -> list[Path]:
    # a rank's standard output before its standard error: where neither is stamped nothing tells more
    return sorted((path for path in _logs(fixture).rglob("*") if path.is_file()), key=lambda p: (p.name < "stdout", p))


def _lines(fixture: Fixture) -> list[Line]:
    """Every line of a run with its writer and its time; a line without a stamp has that of the one above it."""
    lines: list[Line] = []
    for path in _files(fixture):
        name = path.relative_to(_logs(fixture)).as_posix()
        texts = path.read_text(errors="replace").splitlines()
        stamp = next(filter(None, map(_stamp_of, texts)), None)
        for text in texts:
            stamp = _stamp_of(text) or stamp
            lines.append(Line(name, _rank_of(name), stamp, text))
    return lines


def _one_node_with_a_file_a_rank(fixture: Fixture) -> bool:
    names = [path.relative_to(_logs(fixture)).as_posix() for path in _files(fixture)]
    plain = all(name.endswith((".log", ".out", ".err")) for name in names)
    apart = any("node" in name or "attempt_1" in name for name in names)  # what tells these apart is their paths
    return plain and not apart and len({_rank_of(name) for name in names} - {None}) > 1


def _stamped(fixture: Fixture) -> bool:
    return all(line.stamp for line in _lines(fixture) if line.rank is not None)


ALL = find_fixtures([ROOT])
SPLIT = [fixture for fixture in ALL if _one_node_with_a_file_a_rank(fixture)]
STAMPED = [fixture for fixture in SPLIT if _stamped(fixture)]


def _answer(verdict: Verdict) -> tuple[str, str, list[int]]:
    return verdict.status, verdict.category, verdict.ranks


@cache
def _expected(logs: Path) -> tuple[str, str, list[int]]:
    return _answer(analyze(logs).verdict)


def _labelled(line: Line) -> str:
    """As ``srun --label`` prints it."""
    return line.text if line.rank is None else f"{line.rank}: {line.text}"


def _says_the_same(fixture: Fixture, folder: Path) -> None:
    assert _answer(analyze(folder).verdict) == _expected(_logs(fixture))


def test_there_are_runs_to_rearrange():
    assert len(SPLIT) > 60
    assert len(STAMPED) > 20


@given(data=st.data())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_files_in_any_order(data: st.DataObject):
    fixture = data.draw(st.sampled_from([fixture for fixture in ALL if len(_files(fixture)) > 1]))
    files = data.draw(st.permutations(_files(fixture)))

    assert _answer(analyze(files).verdict) == _expected(_logs(fixture))


@pytest.mark.parametrize("fixture", SPLIT, ids=lambda fixture: fixture.name)
def test_one_file_rank_after_rank(fixture: Fixture, tmp_path: Path):
    (tmp_path / "all.log").write_text("".join(f"{_labelled(line)}\n" for line in _lines(fixture)))

    _says_the_same(fixture, tmp_path)


@pytest.mark.parametrize("fixture", STAMPED, ids=lambda fixture: fixture.name)
def test_one_file_merged_by_time(fixture: Fixture, tmp_path: Path):
    merged = sorted(_lines(fixture), key=lambda line: line.stamp or "")
    (tmp_path / "all.log").write_text("".join(f"{_labelled(line)}\n" for line in merged))

    _says_the_same(fixture, tmp_path)


@pytest.mark.parametrize("fixture", SPLIT, ids=lambda fixture: fixture.name)
def test_one_file_a_rank(fixture: Fixture, tmp_path: Path):
    written: dict[int | None, list[str]] = defaultdict(list)
    for line in _lines(fixture):
        written[line.rank].append(line.text)
    for rank, texts in written.items():
        name = "launcher.log" if rank is None else f"rank_{rank}.log"
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))

    _says_the_same(fixture, tmp_path)
