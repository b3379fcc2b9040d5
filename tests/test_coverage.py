"""``parsers/COVERAGE.md`` is true: each shape is claimed by what its row names, and what it leaves out is unclaimed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import regex
from inputs import ROOT

from logforensics.layout import hints_of
from logforensics.patterns import compiled
from logforensics.prefixes import clean, known_prefixes, peel
from logforensics.signatures import SignatureSet, candidates, load_folder, matching

TABLE = ROOT / "parsers" / "COVERAGE.md"
SIGNATURES = SignatureSet(load_folder(ROOT / "parsers", check=False))
_SIGNS = str.maketrans({"⏎": "\n", "⇥": "\t", "␍": "\r", "␛": "\x1b", "␀": "\0"})
_ROW = regex.compile(r"\| (?P<fence>`+)(?P<shape>.+?)(?P=fence) \| (?P<where>[^|]+) \| (?P<note>[^|]*)\|")


@dataclass(frozen=True)
class Row:
    section: str
    number: int
    shape: str
    where: str
    note: str

    @property
    def line(self) -> str:
        """The raw line that the shape stands for."""
        return self.shape.translate(_SIGNS)

    @property
    def names(self) -> list[str]:
        return self.where.split(" + ")

    def __str__(self) -> str:
        return f"COVERAGE.md:{self.number}: {self.shape}"


def rows() -> list[Row]:
    found, section = [], ""
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| ") and line not in ("| shape | where | note |", "| --- | --- | --- |"):
            match = _ROW.fullmatch(line)
            assert match, f"COVERAGE.md:{number}: not a row of three cells with the shape in backticks"
            shape = match["shape"][1:-1] if len(match["fence"]) > 1 else match["shape"]
            shape = shape.replace("\\|", "|")
            found.append(Row(section, number, shape, match["where"].strip(), match["note"].strip()))
    return found


ROWS = rows()
SECTIONS = list(dict.fromkeys(row.section for row in ROWS))


def peeled_by(line: str) -> tuple[list[str], str]:
    """The ids of the prefixes that come off a line, outermost first, and what is left."""
    text, ids, behind_logger = clean(line), [], False
    while True:
        fitting = (
            (prefix, match)
            for prefix in known_prefixes()
            if (behind_logger or not prefix.only_after_logger)
            and (match := compiled(prefix.pattern).match(text)) is not None
            and match.end()
        )
        prefix, match = next(fitting, (None, None))
        if prefix is None:
            return ids, text
        ids.append(f"prefix/{prefix.id}")
        text = text[match.end() :]
        behind_logger = behind_logger or prefix.layer == "logger"
        if prefix.last:
            return ids, text


def claimed_by(line: str, *, fallbacks: bool = True) -> list[str]:
    """The names of the signatures that claim a line; a fallback claims only what ends a traceback."""
    claims = matching(candidates(line, SIGNATURES), line)
    return list(dict.fromkeys(m.signature.name for m in claims if fallbacks or not m.signature.fallback))


def told_by_path(path: str) -> str:
    hints = hints_of(path)
    told = {name: getattr(hints, name) for name in ("rank", "local_rank", "attempt", "node", "stream")}
    return ", ".join(f"{name}={value}" for name, value in told.items() if value is not None)


def problem_of(row: Row) -> str | None:
    if row.where == "not covered":
        claims = claimed_by(row.line, fallbacks=False)
        if not row.note:
            return "says no reason"
        return f"is claimed by {claims}" if claims else None
    if row.where.startswith("layout: "):
        told = told_by_path(row.line)
        return None if told == row.where.removeprefix("layout: ") else f"the path tells {told!r}"
    if row.where.startswith("prefix/"):
        ids, rest = peeled_by(row.line)
        if rest != peel(clean(row.line)).text:
            return f"peel() leaves {peel(clean(row.line)).text!r}"
        if ids != row.names:
            return f"{' + '.join(ids)} comes off"
        return None if rest in ("boom", "", "Traceback (most recent call last):") else f"{rest!r} is left"
    if row.where.endswith(".py"):
        claims = claimed_by(row.line, fallbacks=False)
        if not (ROOT / row.where).is_file():
            return "names no module"
        return f"is claimed by {claims}" if claims else None
    claims = claimed_by(row.line)
    return None if claims == row.names else f"is claimed by {claims or 'nothing'}"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_shape_of_a_section_is_claimed_as_its_row_says(section: str):
    problems = [f"{row} {problem}" for row in ROWS if row.section == section and (problem := problem_of(row))]

    assert not problems, "\n".join(problems)


def test_every_name_is_that_of_a_signature_a_prefix_or_a_module():
    known = {signature.name for signature in SIGNATURES.signatures} | {f"prefix/{p.id}" for p in known_prefixes()}
    unknown = [
        f"{row}: {name}"
        for row in ROWS
        for name in row.names
        if name not in known and not name.startswith("layout: ") and not name.endswith(".py") and name != "not covered"
    ]

    assert not unknown, "\n".join(unknown)


def test_no_shape_stands_twice_in_a_section():
    counts = Counter((row.section, row.shape) for row in ROWS)

    assert [shape for (_, shape), count in counts.items() if count > 1] == []


def test_the_sources_of_a_run_each_have_a_section():
    numbers = {section.partition(" ")[0].partition(".")[0] for section in SECTIONS}

    assert numbers == {"A", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}
    assert len(ROWS) > 900
