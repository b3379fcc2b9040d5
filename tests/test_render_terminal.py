"""The verdict in the terminal: readable at any width, with or without colour, whatever the logs hold."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys

import pytest
from render_samples import HOSTILE, event, hostile, huge, ordinary, timeout
from rich.cells import cell_len
from rich.console import Console

from logforensics.render.commands import wrap_command
from logforensics.render.folding import FOLD_ABOVE, folded
from logforensics.render.sheet import Sheet
from logforensics.render.terminal import print_timeline, print_verdict
from logforensics.render.text import clean, cut, duration, size
from logforensics.render.view import build_page


class Out(io.TextIOWrapper):
    """A stream with an encoding, as a pipe or a terminal has one."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n")

    def text(self) -> str:
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode(self.encoding)


def shown(analysis, width=80, encoding="utf-8", timeline=False, **console) -> str:
    out = Out(encoding)
    target = Console(file=out, width=width, **console)
    if timeline:
        print_timeline(analysis.events, target)
    else:
        print_verdict(analysis, target)
    return out.text()


def test_the_answer_comes_first_in_words():
    lines = shown(ordinary()).split("\n")

    assert "Rank 1 failed first: it raised an exception" in lines[2]
    assert "Diagnosed" in lines[3] and "user_exception" in lines[3]
    assert "Confidence: high" in lines[4]


def test_it_shows_all_that_a_verdict_holds():
    text = shown(ordinary(), width=160)

    for piece in (
        "logs/rank1.log:10-11",
        "▸ 10 │ ValueError: boom",
        "10 min 00 s before",
        "is the first",
        "How it spread",
        "stopped by the launcher",
        "SIGABRT",
        "ALLREDUCE number 100",
        "never entered: rank 1",
        "came with something else: rank 2",
        "Read ValueError: boom",
        "echo 'ValueError: boom'",
        "no log of rank 7",
        "network_fabric on ranks 0, 2",
        "attempts",
    ):
        assert piece in text, piece


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("make", [ordinary, huge, hostile])
@pytest.mark.parametrize("timeline", [False, True])
def test_no_line_is_wider_than_the_terminal(make, width, timeline):
    analysis = huge(64) if timeline and make is huge else make()

    for line in shown(analysis, width=width, timeline=timeline).split("\n"):
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("timeline", [False, True])
def test_hostile_text_stays_inert(timeline):
    text = shown(hostile(), width=200, timeline=timeline)

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert "[bold red]boom[/bold red]" in text
    assert ":smile:" in text
    assert "{{ 7*7 }}" in text


def test_even_in_colour_the_only_escapes_are_our_own():
    text = shown(hostile(), width=200, force_terminal=True, color_system="standard")

    assert "\x1b[" in text
    assert not re.search(r"\x1b(?!\[[\d;]*m)", text)


def test_a_pipe_gets_plain_text():
    assert "\x1b" not in shown(ordinary())


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    text = shown(ordinary(), force_terminal=True)

    assert not re.search(r"\x1b\[[\d;]*\b(3\d|4\d|9\d|38|48)\b[\d;]*m", text)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("make", [ordinary, hostile])
@pytest.mark.parametrize("timeline", [False, True])
def test_without_utf8_the_consoles_own_characters_are_used(make, encoding, timeline):
    text = shown(make(), encoding=encoding, timeline=timeline)

    assert not set("─│╭▸…•") & set(text)


@pytest.mark.parametrize(("encoding", "width"), [("ascii", 80), ("cp1252", 200)])
def test_the_program_prints_on_any_console(tmp_path, encoding, width):
    log = tmp_path / "rank0.log"
    log.write_text('Traceback (most recent call last):\n  File "x.py", line 1\nValueError: größe → 漢字 🙂\n', "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": str(width), "NO_COLOR": "1", "TERM": "xterm"}

    for command in ("analyze", "timeline"):
        done = subprocess.run(
            [sys.executable, "-m", "logforensics", command, str(log)], env=environment, capture_output=True, check=True
        )
        text = done.stdout.decode(encoding)

        assert done.stderr == b""
        assert ("größe" if encoding == "cp1252" else "gr\\xf6\\xdfe") in text
        assert "\\u6f22\\u5b57" in text and "\\U0001f642" in text and "\x1b" not in text
        assert max(map(len, text.splitlines())) <= width


def test_many_ranks_are_folded_into_few_rows():
    text = shown(huge(2048), width=80)

    assert "2,047 ranks" in text
    assert text.count("\n") < 160


def test_the_failed_rank_is_never_folded_away():
    others = [event(rank, f"Error {chr(65 + rank % 26)}{chr(65 + rank // 26)}", 1 + rank) for rank in range(2, 60)]
    events = [*others, event(1, "ValueError: mine", 500)]
    for number, item in enumerate(events):
        item.event_id = number

    rows, hidden = folded(events, {}, {1})

    assert len(rows) == FOLD_ABOVE
    assert any(row.origin and row.message == "ValueError: mine" for row in rows)
    assert hidden == len(events) - FOLD_ABOVE


def test_where_nothing_is_established_the_origin_is_called_a_suspect():
    analysis = ordinary()
    analysis.verdict.status, analysis.verdict.confidence = "undetermined", "low"

    text = shown(analysis)

    assert "the suspect" in text and "a lead, not an answer" in text
    assert "▸  failed first" not in text


def test_few_ranks_keep_a_row_each():
    events = [timeout(rank, 600) for rank in range(FOLD_ABOVE)]

    assert len(folded(events, {}, set())[0]) == FOLD_ABOVE


def test_a_line_copied_by_the_launcher_is_one_quote_with_two_places():
    analysis = ordinary()
    second = analysis.verdict.evidence[0]
    analysis.verdict.evidence[1] = type(second)("launcher.err", 7, 7, second.text, second.rank, second.node)

    quotes = build_page(analysis).evidence

    assert [quote.also for quote in quotes] == [["launcher.err:7"]]


def test_an_evidence_without_an_excerpt_shows_its_line():
    analysis = ordinary()
    analysis.excerpts = {}

    assert "    ValueError: boom" in shown(analysis)


def test_an_empty_timeline_says_so():
    analysis = ordinary()
    analysis.events = []

    assert shown(analysis, timeline=True) == "No event passes the filters.\n"


def test_a_derived_time_is_marked_in_the_timeline():
    analysis = ordinary()
    analysis.events[1].time_basis = "derived"

    text = shown(analysis, timeline=True)

    assert "~20:36:40.000" in text
    assert " 20:26:40.000" in text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("a\x1bb", "a\\x1bb"),
        ("a\x00b", "a\\x00b"),
        ("50%\r100%", "50%\\r100%".replace("\\r", "\\x0d")),
        ("\u202eevil", "\\u202eevil"),
        ("\udc80", "\\x80"),
        ("\ud800", "\\ud800"),
        ("a\u00a0b", "a b"),
        ("two\nlines", "two\\x0alines"),
        ("tab\tx", "tab x"),
    ],
)
def test_control_characters_are_spelled_out(raw, expected):
    assert clean(raw) == expected


def test_a_line_of_a_hundred_megabytes_is_cut_in_its_middle():
    assert clean("a" * 50_000_000 + "z") == cut("a" * 5_000 + "z", 2000)


@pytest.mark.parametrize(("seconds", "expected"), [(0.31, "0.3 s"), (59.97, "1 min 00 s"), (-7380, "2 h 03 min")])
def test_durations_read_as_people_say_them(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize(("count", "expected"), [(7, "7 B"), (1500, "1.5 KB"), (123_456_789, "123 MB")])
def test_sizes_read_as_people_say_them(count, expected):
    assert size(count) == expected


def test_a_long_command_is_broken_so_that_it_can_still_be_copied():
    command = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv 'a  b'"

    lines = wrap_command(command, 50)

    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_cutting_keeps_both_ends_and_counts_columns():
    sheet = Sheet(Console(file=Out("utf-8"), width=80))

    fitted = sheet.fit("漢字" * 40, 21)

    assert cell_len(fitted) <= 21
    assert "…" in fitted
    assert sheet.fit("head" + "x" * 99 + "tail", 20).startswith("head")
    assert sheet.fit("head" + "x" * 99 + "tail", 20).endswith("tail")


def test_hostile_text_of_the_samples_holds_what_it_should():
    assert {"\x1b", "\u202e", "\x00", "\udc80"} <= set(HOSTILE)
