"""Signatures: every sample gives its fields wherever it can stand, and a bad dialect is refused in plain words."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from reading import events_of, scanners, told

from logforensics.analysis import analyze
from logforensics.callsites import activity_of, known_callsites
from logforensics.prefixes import behind_prefixes, known_prefixes, peel, segments
from logforensics.records import Frame
from logforensics.resources import data_folder
from logforensics.signatures import (
    OTHER_TABLES,
    Signature,
    SignatureError,
    SignatureSet,
    check_samples,
    dialect_files,
    how_far,
    known_remedies,
    load_dialect,
    load_folder,
    matching,
    peel_record,
    shipped_signatures,
    signatures_with,
)

ALL = shipped_signatures()
SCAN = scanners()
NUMBER = {signature.name: number for number, signature in enumerate(ALL.signatures)}
# What two carriers of a line put in front of it: pods behind a task's label, a stamp behind a host's name ...
OUTER = [sample["line"] for prefix in known_prefixes() if prefix.layer == "carrier" for sample in prefix.samples]
PAIRS = 4


def names(signature: Signature) -> str:
    return signature.name


def flat(fields: dict[str, Any]) -> dict[str, Any]:
    """A carrier may take a blank of an indented line along."""
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in fields.items()}


def on_each_line(prefix: str, record: str) -> str:
    return prefix + record.replace("\n", "\n" + prefix)


def stacked(record: str, number: int) -> list[str]:
    """Return a record behind some of the pairs of prefixes; the next number has the next pairs."""
    inner = list(behind_prefixes(record))
    pairs = list(product(range(len(OUTER)), range(len(inner))))
    chosen = [pairs[(number * PAIRS + step) * 1009 % len(pairs)] for step in range(PAIRS)]
    return [on_each_line(OUTER[outer], inner[place]) for outer, place in chosen]


def readings(line: str) -> tuple[Any, ...]:
    """Return all that the signatures get to see of a line."""
    peeled = [peel_record(record) for record in ([line] if "\n" in line else segments(line))]
    return tuple((text, *first.guesses) for text, first in peeled)


def asked(lines: list[str]) -> list[Signature]:
    """Return the signatures that a scan of these lines would ask; ``candidates``, only faster."""
    text = "\n".join(lines).encode()
    found = {signature.name: signature for signature in ALL.fallbacks}
    for engine, needed in ((SCAN.whole_engine, SCAN.whole), (SCAN.window_engine, SCAN.window)):
        for number in {number for _, number in engine.scan(text)} - {SCAN.header if needed is SCAN.whole else -1}:
            found |= {signature.name: signature for signature in needed[number]}
    return list(found.values())


# --- the shipped ones -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("signature", ALL.signatures, ids=names)
def test_a_sample_gives_its_fields_to_its_signature_alone_wherever_it_stands(signature: Signature):
    assert signature.samples
    for number, sample in enumerate(signature.samples):
        lines = [
            sample.line,
            sample.line + "\r",
            "\x1b[31m" + sample.line + "\x1b[0m",
            "\x1b[1;38;5;196m" + sample.line.replace(" ", " \x1b[0m", 1),
            *behind_prefixes(sample.line),
            *stacked(sample.line, NUMBER[signature.name] + number),
        ]
        claimants = asked(lines)
        different = {readings(line): line for line in reversed(lines)}
        for line in different.values():
            claims = [(match.signature.name, flat(match.fields)) for match in matching(claimants, line)]
            assert claims == [(signature.name, flat(sample.fields))], f"{line!r}\n{how_far(signature, sample.line)}"


@pytest.mark.parametrize("signature", ALL.signatures[::3], ids=names)
def test_who_is_not_asked_by_a_scan_would_not_claim_a_sample_either(signature: Signature):
    """A third of them each run: all against all takes long, and the rule is the same for all (test_expression)."""
    for sample in signature.samples:
        assert [match.signature.name for match in matching(ALL.signatures, sample.line)] == [signature.name]


def in_a_log(signature: Signature, line: str) -> str:
    """Return a log with this line; a fallback only counts as the last line of a traceback."""
    if not signature.fallback:
        return line + "\n"
    mark = line.removesuffix(peel(line).text) if "\n" not in line else ""
    stack = ["Traceback (most recent call last):", '  File "/work/train.py", line 7, in main', "    step()"]
    return "".join(f"{mark}{above}\n" for above in stack) + line + "\n"


# a warning is no exception's line unless it was raised: the fallbacks among the noise say what "parsers try" shows
@pytest.mark.parametrize("signature", [s for s in ALL.signatures if not (s.fallback and s.role == "noise")], ids=names)
def test_a_scan_finds_each_sample_in_a_log(signature: Signature, tmp_path: Path):
    for number, sample in enumerate(signature.samples):
        events = told(events_of(tmp_path / str(number), in_a_log(signature, sample.line)))
        found = [event for event in events if event.signature == signature.name]

        assert found, [event.signature for event in events]
        shape = (found[0].kind, found[0].role, found[0].category)
        assert shape == (signature.kind, signature.role, signature.category)


NOTS = [(signature, line, why) for signature in ALL.signatures for line, why in signature.nots]


@pytest.mark.parametrize(("signature", "line", "why"), NOTS, ids=[f"{s.name}-{n}" for n, (s, _, _) in enumerate(NOTS)])
def test_a_line_that_must_not_match_does_not(signature: Signature, line: str, why: str):
    lines = [line, line + "\r", f"\x1b[33m{line}\x1b[0m", *behind_prefixes(line)]
    claimants = asked(lines)
    for shown in {readings(line): line for line in lines}.values():
        claims = [match.signature.name for match in matching(claimants, shown)]
        assert signature.name not in claims, f"{shown!r}: {why}"


def test_every_prefix_is_tried_in_front_of_a_sample():
    tried = list(behind_prefixes("RuntimeError: boom"))

    for prefix in known_prefixes():
        for sample in prefix.samples:
            assert any(line.endswith(sample["line"] + "RuntimeError: boom") for line in tried)


def test_the_pairs_of_prefixes_are_all_tried_on_some_sample():
    inner = len(list(behind_prefixes("x")))
    tried = {line for number in range(len(ALL.signatures)) for line in stacked("x", number)}

    assert len(tried) == len(OUTER) * inner


def test_every_file_of_the_parsers_folder_is_a_dialect_and_no_name_is_taken_twice():
    files = [path.name for path in data_folder("parsers").iterdir() if path.name.endswith(".toml")]

    assert {signature.name.split("/")[0] + ".toml" for signature in ALL.signatures} == set(files) - set(OTHER_TABLES)
    assert len(NUMBER) == len(ALL.signatures)


def test_what_the_cache_keeps_is_what_was_loaded(tmp_path: Path):
    shipped = shipped_signatures.__wrapped__
    shipped(tmp_path)
    kept = shipped(tmp_path)

    assert [(s.name, s.regex, s.scan, s.role, s.fallback, s.before, s.after) for s in kept.signatures] == [
        (s.name, s.regex, s.scan, s.role, s.fallback, s.before, s.after) for s in ALL.signatures
    ]


@pytest.mark.parametrize("damage", [b"", b"[{", b"[1]"])
def test_a_damaged_cache_of_signatures_is_read_anew(tmp_path: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("logforensics.signatures.dialect_files", lambda folder: [folder / "mpi.toml"])
    shipped = shipped_signatures.__wrapped__
    whole = shipped(tmp_path).signatures
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(damage)

    assert [s.name for s in shipped(tmp_path).signatures] == [s.name for s in whole]
    assert kept.stat().st_size > len(damage)


@pytest.mark.parametrize("site", known_callsites(), ids=lambda site: site.id)
def test_a_callsite_tells_what_its_samples_were_doing(site):
    for sample in site.samples:
        path, line, function = (
            sample.removeprefix('File "').replace('", line ', "\n").replace(", in ", "\n").split("\n")
        )

        assert activity_of([Frame(path, int(line), function)]) == site.activity


# --- one's own ------------------------------------------------------------------------------------------------

GOOD = r"""
title = "Storage daemon"
seen_in = ["stord 1.0"]
reference = "stord src/log.c"

[[signature]]
id = "volume-gone"
says = "lost its volume"
kind = "exception"
role = "cause"
category = "disk_full"
pattern = '''^stord\svolume\s(?P<path>/\S+)\sis\sgone'''
[[signature.sample]]
line = "stord volume /vol/7 is gone"
fields = { path = "/vol/7" }
[[signature.not]]
line = "stord volume /vol/7 is back"
why = "good news"
"""
HEAD, ENTRY = GOOD.split("[[signature]]")
MORE = "[[signature]]" + ENTRY.replace("volume-gone", "disk-gone")


def own(folder: Path, **dialects: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in dialects.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def refusal(folder: Path, text: str) -> str:
    """Return the one problem of a folder with this dialect."""
    result = signatures_with(own(folder, mine=text))
    (problem,) = result.problems
    assert [s.name for s in result.signatures] == [s.name for s in ALL.signatures]
    return problem


def test_a_good_dialect_is_taken_beside_the_shipped_ones(tmp_path: Path):
    result = signatures_with(own(tmp_path, mine=GOOD))

    assert result.problems == []
    assert [s.name for s in result.signatures] == [*NUMBER, "mine/volume-gone"]


BAD = {
    "no TOML": ("= 3", ["not valid TOML", "line 1"]),
    "no signature": (HEAD, ["no [[signature]]"]),
    "one table": (GOOD.replace("[[signature]]", "[signature]"), ["write [[signature]]"]),
    "no title": (GOOD.replace("title", "subject"), ["'title'", "add it at the top"]),
    "no reference": (GOOD.replace("reference", "source"), ["'reference'"]),
    "unknown key on top": (GOOD.replace("title =", "sort = 1\ntitle ="), ["'sort'", "known keys are", "reference"]),
    "seen in a text": (GOOD.replace('["stord 1.0"]', '"stord"', 1), ["seen_in", "a list"]),
    "no id": (GOOD.replace('id = "volume-gone"', ""), ["(no id)", "the id must be words"]),
    "bad id": (GOOD.replace("volume-gone", "Volume_Gone"), ["Volume_Gone", "'watchdog-timeout'"]),
    "unknown key": (GOOD.replace("role =", 'sort = "x"\nrole ='), ["volume-gone", "'sort'", "known keys are"]),
    "no pattern": (GOOD.replace("pattern =", "reference ="), ["volume-gone", "'pattern' is missing"]),
    "unknown kind": (GOOD.replace('"exception"', '"oops"'), ["volume-gone", "kind 'oops'", "timeout, collective"]),
    "unknown role": (GOOD.replace('"cause"', '"reason"'), ["volume-gone", "role 'reason'", "cause, either"]),
    "unknown category": (GOOD.replace('"disk_full"', '"disk"'), ["volume-gone", "category 'disk'", "disk_full"]),
    "unknown remedy": (GOOD.replace("role =", 'remedy = "pray"\nrole ='), ["volume-gone", "remedy 'pray'", "cuda-oom"]),
    "unknown scope": (GOOD.replace("role =", 'scope = "rack"\nrole ='), ["volume-gone", "scope 'rack'", "node, run"]),
    "unknown stream": (GOOD.replace("role =", 'stream = "tty"\nrole ='), ["volume-gone", "stream 'tty'", "stderr"]),
    "unknown phase": (GOOD.replace("role =", 'phase = "end"\nrole ='), ["volume-gone", "phase 'end'", "shutdown"]),
    "unknown activity": (GOOD.replace("role =", 'activity = "tea"\nrole ='), ["volume-gone", "activity 'tea'"]),
    "no category": (GOOD.replace('category = "disk_full"', ""), ["volume-gone", "a cause needs a category"]),
    "bad pattern": (GOOD.replace("(?P<path>", "(?P<path"), ["volume-gone", "does not compile"]),
    "unknown field": (GOOD.replace("<path>", "<disk>"), ["volume-gone", "'disk'", "known: ", "exitcode"]),
    "nothing to scan for": (GOOD.replace(r"^stord\svolume", r"^\w+\s\w+").replace(r"\sis\sgone", ""), ["volume-gone", "4 characters"]),
    "before a text": (GOOD.replace("role =", 'before = "2"\nrole ='), ["volume-gone", "before must be a number"]),
    "before too far": (GOOD.replace("role =", "before = 99\nrole ="), ["volume-gone", "between 0 and 12"]),
    "kind a list": (GOOD.replace('"exception"', '["exception"]'), ["volume-gone", "kind must be a text"]),
    "fallback a text": (GOOD.replace("role =", 'fallback = "no"\nrole ='), ["volume-gone", "fallback must be true or false"]),
    "no sample": (GOOD.split("[[signature.sample]]")[0], ["volume-gone", "no [[signature.sample]]", "add a real line"]),
    "sample a text": (GOOD.split("[[signature.sample]]")[0] + 'sample = ["x"]', ["volume-gone", "[[signature.sample]]"]),
    "sample without line": (GOOD.replace("line =", "text =", 1), ["volume-gone", "unknown key 'text'"]),
    "empty sample": (GOOD.replace('"stord volume /vol/7 is gone"', '""', 1), ["volume-gone", "no 'line'"]),
    "not without why": (GOOD.replace("why =", "line2 ="), ["volume-gone", "unknown key 'line2'"]),
    "not without reason": (GOOD.replace('"good news"', '""'), ["volume-gone", "needs 'line' and 'why'"]),
    "sample does not match": (
        GOOD.replace("stord volume /vol/7 is gone", "stord volume vol-7 is gone"),
        ["volume-gone", "does not match its sample", "stord volume vol-7 is gone", "^ matched up to here"],
    ),
    "blank not written": (GOOD.replace(r"stord\svolume", "stord volume"), ["volume-gone", r"a blank is written \s"]),
    "sample a scan cannot find": (
        GOOD.replace("stord volume /vol/7 is gone", r"stord\tvolume /vol/7 is\tgone", 1),
        ["volume-gone", "a scan looks for 'stord volume"],
    ),
    "wrong value": (GOOD.replace('path = "/vol/7"', 'path = "/vol/8"'), ["volume-gone", "/vol/7", "/vol/8", "correct"]),
    "field forgotten": (GOOD.replace('fields = { path = "/vol/7" }', ""), ["volume-gone", "the fields say {}"]),
    "field of the wrong type": (
        GOOD.replace("path>/\\S+", "step>\\d+").replace("/vol/7", "7").replace('path = "7"', 'step = "7"'),
        ["volume-gone", "{'step': 7}", "{'step': '7'}"],
    ),
    "matches what it must not": (
        GOOD.replace("is back", "is gone"),
        ["volume-gone", "must not (good news)", "more precise", "stord volume /vol/7 is gone"],
    ),
    "not behind a prefix": (
        GOOD.replace(r"^stord\svolume", r"^-\sstord\svolume").replace('"stord volume /vol/7 is g', '"- stord volume /vol/7 is g'),
        ["volume-gone", "does not match its sample"],
    ),
    "claimed by its neighbour": (GOOD + MORE, ["claimed by mine/", "make one of them more precise"]),
    "claimed by a shipped one": (
        GOOD.replace(r"^stord\svolume\s(?P<path>/\S+)\sis\sgone", r"^RuntimeError:\sDataLoader\sworker")
        .replace("stord volume /vol/7 is gone", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.")
        .replace('fields = { path = "/vol/7" }', ""),
        ["volume-gone", "claimed by dataloader/", "make one of them more precise"],
    ),
    "the same id twice": (GOOD + "[[signature]]" + ENTRY, ["volume-gone", "taken", "choose another id"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_bad_dialect_is_refused_and_its_writer_told_where_what_and_what_to_do(tmp_path: Path, text, words):
    problem = refusal(tmp_path, text)

    assert problem.startswith("mine.toml")
    for word in words:
        assert word in problem


def test_the_line_of_the_signature_is_named(tmp_path: Path):
    text = GOOD.replace('"exception"', '"oops"')
    line = text.splitlines().index('id = "volume-gone"') + 1

    assert refusal(tmp_path, text).startswith(f"mine.toml:{line}: volume-gone: ")


def test_the_caret_stands_where_the_pattern_stopped():
    shown = how_far(load_dialect("mine.toml", GOOD)[0], "stord volume vol-7 is gone").splitlines()

    assert shown[1].index("^") - shown[0].index("stord") == len("stord volume ")


def test_a_name_of_a_shipped_signature_is_taken(tmp_path: Path):
    folder = own(tmp_path, pg_nccl=GOOD.replace("volume-gone", "watchdog-timeout"))

    (problem,) = signatures_with(folder).problems
    assert problem.startswith("pg_nccl.toml: pg_nccl/watchdog-timeout: this name is taken; choose another id")


def test_a_bad_file_does_not_keep_the_good_ones_out(tmp_path: Path):
    folder = own(tmp_path, bad="= 3", good=GOOD)
    (folder / "latin.toml").write_bytes(b'title = "\xe9"')
    (folder / "folder.toml").mkdir()
    result = signatures_with(folder)

    assert [problem.split(":")[0] for problem in result.problems] == ["bad.toml", "latin.toml"]
    assert "save it as UTF-8" in result.problems[1]
    assert result.signatures[-1].name == "good/volume-gone"


def test_an_edited_file_is_seen(tmp_path: Path):
    assert signatures_with(own(tmp_path, mine=GOOD)).problems == []
    assert signatures_with(own(tmp_path, mine="= 3")).problems != []


def test_a_folder_that_is_none_or_holds_no_dialect_is_an_error(tmp_path: Path):
    with pytest.raises(SignatureError, match="nowhere: no such folder; give a folder of dialect files"):
        signatures_with(tmp_path / "nowhere")
    with pytest.raises(SignatureError, match="no dialect file"):
        signatures_with(tmp_path)


def test_a_folder_of_ones_own_is_checked_as_a_whole(tmp_path: Path):
    assert [s.name for s in load_folder(own(tmp_path, one=GOOD))] == ["one/volume-gone"]
    with pytest.raises(SignatureError, match="claimed by"):
        load_folder(own(tmp_path, two=GOOD))
    with pytest.raises(SignatureError, match="two signatures have this name"):
        load_folder(own(tmp_path / "twice", one=GOOD + "[[signature]]" + ENTRY))
    assert [path.name for path in dialect_files(tmp_path)] == ["one.toml", "two.toml"]


def test_the_check_takes_fields_that_a_prefix_only_shifts():
    text = GOOD.replace(r"\sis\sgone", r"\sis\sgone(?P<detail>(?:\n\s+-\s\w+)+)").replace(
        'line = "stord volume /vol/7 is gone"\nfields = { path = "/vol/7" }',
        'line = "stord volume /vol/7 is gone\\n   - one\\n   - two"\nfields = { path = "/vol/7", detail = "- one\\n   - two" }',
    )
    mine = load_dialect("mine.toml", text)

    check_samples(mine, SignatureSet(ALL.signatures + mine))


def test_every_remedy_can_be_pointed_to():
    text = GOOD.replace("role =", f'remedy = "{known_remedies()[-1]}"\nrole =')

    assert load_dialect("mine.toml", text)[0].remedy == known_remedies()[-1]


def test_an_own_signature_makes_events_and_a_refused_one_a_note(tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text("2026-11-30 19:11:05 INFO up\n[rank1]: stord volume /vol/7 is gone\n")

    result = analyze(log, parsers=own(tmp_path / "own", mine=GOOD, bad="= 3"), use_cache=False)

    (event,) = [event for event in result.events if event.signature == "mine/volume-gone"]
    assert (event.rank, event.fields["path"], event.category, event.line) == (1, "/vol/7", "disk_full", 2)
    (note,) = [note for note in result.notes if note.source == "your signatures"]
    assert "bad.toml: not valid TOML" in note.what
