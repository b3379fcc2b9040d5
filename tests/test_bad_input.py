"""What broken and hostile logs do: one clear line, the rest analysed, never a traceback, nothing obeyed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from inputs import COMPRESS, SHAPE_LOG, SHAPE_TRUTH, Program, Ran, encrypted, read_terminal, tar, write, zipped

from logforensics.analysis import analyze, read_sources
from logforensics.buffer import LogBuffer
from logforensics.reader import Scanners
from logforensics.signatures import shipped_signatures
from logforensics.sources import collect

LINES = SHAPE_LOG.splitlines(keepends=True)
ERROR = next(line for line in LINES if SHAPE_TRUTH["evidence"].encode() in line)
NOISE = bytes(range(256)) * 40


@pytest.fixture
def program(monkeypatch, capfd) -> Program:
    return Program(monkeypatch, capfd)


def check_refused(ran: Ran, *says: str) -> None:
    """Exit status 2, nothing on standard output, and one line that says what, where and what to do."""
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("logforensics") and ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    for text in says:
        assert text in ran.err


def check_right(report: dict) -> None:
    """The real run's cause is found, whatever lies beside it or around it."""
    verdict = report["verdict"]
    assert (verdict["category"], verdict["ranks"]) == (SHAPE_TRUTH["category"], SHAPE_TRUTH["ranks"])
    assert SHAPE_TRUTH["evidence"] in verdict["evidence"][0]["text"]


# -- what cannot be used at all -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "an empty folder": ({}, "no log file here; give the folder that holds the run's output"),
    "a binary file": ({"core.1": b"\x7fELF" + NOISE}, "core.1: a binary file, not a log; skipped"),
    "a damaged gzip": ({"a.gz": COMPRESS["gz"](SHAPE_LOG)[:10] + NOISE}, "a.gz: the gzip data are damaged"),
    "a cut zstandard": ({"a.zst": COMPRESS["zst"](SHAPE_LOG)[:900]}, "a.zst: the zstandard data are cut off"),
    "an encrypted zip": ({"a.zip": encrypted(zipped({"x.log": SHAPE_LOG}))}, "a.zip!x.log: encrypted; unpack it"),
    "an empty zip": ({"a.zip": zipped({})}, "a binary file"),
    "only zeros": ({"a.log": bytes(9999)}, "a.log: a binary file"),
    "configuration": ({"ds_config.json": b"{}"}, "no log file here"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_input_without_a_log_is_refused_in_one_line(tmp_path, program, name):
    files, says = REFUSED[name]
    folder = tmp_path / "run"
    folder.mkdir()

    check_refused(program("analyze", write(folder, files)), str(folder), says)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nonexistent/run.log", "/nonexistent/run.log: no such file or folder; check the path"),
        ("/nonexistent/*.log", "nothing matches this pattern; check the path"),
        ("/dev/null", "not a regular file"),
        ("a\nb\x1bc\x9b2J\u202e", "a\\x0ab\\x1bc\\x9b2J\\u202e: no such file"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused_in_one_line(program, path, says):
    check_refused(program("analyze", path), says)


def test_empty_standard_input_is_refused(program):
    check_refused(program("analyze", "-", stdin=b""), "nothing came through standard input; pipe a log into it")


# -- what is skipped beside a good log ------------------------------------------------------------------------


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "bad")


def _loop(folder: Path) -> None:
    (folder / "bad").symlink_to("bad")


def _file(content: bytes) -> Callable[[Path], None]:
    return lambda folder: write(folder, {"bad": content}) and None


_CUT_TAR = COMPRESS["gz"](tar({"x.txt": b"".join(b"fine %d\n" % (number**5) for number in range(2000))}))
BESIDE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (_fifo, "bad: not a regular file; skipped"),
    "a link to itself": (_loop, "bad: a link that leads nowhere; skipped"),
    "a binary file": (_file(NOISE), "bad: a binary file, not a log; skipped"),
    "a cut gzip": (_file(COMPRESS["gz"](b"fine so far\n" * 999)[:40]), "bad: the gzip data are cut off; read up to there"),
    "a damaged xz": (_file(COMPRESS["xz"](SHAPE_LOG)[:40] + NOISE), "bad: the xz data are damaged"),
    "a cut tar.gz": (_file(_CUT_TAR[: len(_CUT_TAR) // 2]), "bad: the gzip data are cut off; read up to there"),
    "a cut tar": (_file(tar({"x.txt": b"fine so far\n" * 999})[:4000]), "bad!x.txt: the archive ends inside it"),
    "a cut zip": (_file(zipped({"x.txt": b"fine\n"})[:-30]), "the zip archive is cut off or damaged"),
    "an encrypted zip": (_file(encrypted(zipped({"x": NOISE}))), "bad!x: encrypted; unpack it and give what was in it"),
    "a climbing member": (_file(tar({"../../x": b"fine\n"})), "members with names that lead out of it (../../x)"),
    "a broken error file": (lambda f: write(f, {"error.json": b"{" * 9}), "error.json: no torchelastic error file: not"),
    "a deep error file": (lambda f: write(f, {"error.json": b"[" * 99_999}), "error.json: no torchelastic error file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_skipped_is_told_and_the_rest_is_analysed(tmp_path, program, name):
    make, says = BESIDE[name]
    make(write(tmp_path, {"train.log": SHAPE_LOG}))

    ran = program("analyze", tmp_path, "--json", "-")
    check_right(ran.report)
    assert ran.err == ""
    missing = ran.report["verdict"]["missing"]
    assert says in missing[-1]
    assert len(missing) == len(ran.report["run"]["skipped"]) == (2 if name == "a cut tar.gz" else 1)


def test_of_very_many_bad_files_the_first_are_named_and_the_others_counted(tmp_path, program):
    write(tmp_path, {f"{number:03}.gz": COMPRESS["gz"](SHAPE_LOG)[:30] for number in range(100)})
    write(tmp_path, {"train.log": SHAPE_LOG})

    report = program("analyze", tmp_path, "--json", "-").report
    check_right(report)
    missing = report["verdict"]["missing"]
    assert (
        len(missing) < 20 and missing[0].startswith("000.gz: ") and "88 more files were skipped or cut" in missing[-1]
    )
    assert len(report["run"]["skipped"]) == 100


# -- logs in strange shapes -----------------------------------------------------------------------------------

_BAR = b"".join(b"\r%3d%%|####| %d/9000 [00:01<00:02, 3.2it/s]" % (number // 90, number) for number in range(9000))
STRANGE: dict[str, bytes] = {
    "invalid UTF-8": b"\xff\xfe\xfa garbage \x80\n" + SHAPE_LOG.replace(b"loss", b"l\xf6ss"),
    "NULs": SHAPE_LOG.replace(b"\n", b"\0\n", 50) + bytes(50),
    "a hole at its beginning": bytes(100_000) + SHAPE_LOG,
    "UTF-16": SHAPE_LOG.decode().encode("utf-16"),
    "UTF-16 without a mark": SHAPE_LOG.decode().encode("utf-16-le"),
    "a UTF-8 mark": b"\xef\xbb\xbf" + SHAPE_LOG,
    "Windows line ends": SHAPE_LOG.replace(b"\n", b"\r\n"),
    "a line of 20 MB before": b"x" * 20_000_000 + b"\n" + SHAPE_LOG,
    "a line of 20 MB after": SHAPE_LOG + b"Traceback (most recent call last):" * 600_000,
    "an error behind a progress bar": SHAPE_LOG.replace(ERROR, _BAR + b"\r" + ERROR),
    "an error before a progress bar": SHAPE_LOG.replace(ERROR, ERROR[:-1] + _BAR + b"\n"),
    "an error of 20 MB": SHAPE_LOG.replace(ERROR, ERROR[:-1] + b" and so on" * 2_000_000 + b"\n"),
    "colours and titles": b"".join(b"\x1b]0;run\x07\x1b[1;31m" + line[:-1] + b"\x1b[0m\n" for line in LINES),
    "no newline at its end": SHAPE_LOG.rstrip(b"\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_log_tells_the_same(tmp_path, program, name):
    write(tmp_path, {"train.log": STRANGE[name]})

    report = program("analyze", tmp_path, "--json", "-").report
    check_right(report)
    assert report["verdict"]["missing"] == []
    assert len(report["verdict"]["evidence"][0]["text"]) < 3000


def test_the_line_number_of_evidence_counts_newlines_alone(tmp_path, program):
    write(tmp_path, {"train.log": b"\r\r\x0b\x0c\n" + SHAPE_LOG.replace(ERROR, _BAR + b"\r" + ERROR)})

    evidence = program("analyze", tmp_path, "--json", "-").report["verdict"]["evidence"][0]
    assert evidence["line"] == LINES.index(ERROR) + 2


@pytest.mark.parametrize("files", [{"a.log": b""}, {"a/b.log": b"", "a/c/d.err": b""}], ids=["file", "tree"])
def test_empty_logs_leave_the_run_undetermined(tmp_path, program, files):
    report = program("analyze", write(tmp_path, files), "--json", "-").report

    assert (report["verdict"]["status"], report["verdict"]["confidence"]) == ("undetermined", "low")
    assert report["verdict"]["missing"] == ["every log file is empty"]


def test_text_that_is_no_log_gives_no_verdict_of_failure(tmp_path, program):
    write(tmp_path, {"letter.txt": b"Dear reader,\n\nnothing happened.\n"})

    assert program("analyze", tmp_path, "--json", "-").report["verdict"]["status"] != "diagnosed"


def test_claims_beyond_any_machine_neither_fill_memory_nor_break_the_timeline(tmp_path, program):
    huge = b"99999999999999999999"
    write(tmp_path, {
        "train.log": SHAPE_LOG,
        "torchrun_x/attempt_99999999/99999/stderr.log": b"2026-11-30T19:11:05+99:99 step 1\n",
        "more.log": b"".join(
            line % {b"n": number} for number in (huge, b"4294967296", b"-1", b"0") for line in (
                b"[rank%(n)s]: ValueError: x\n",
                b"***** world_size=%(n)s rank=%(n)s local_rank=%(n)s *****\n",
                b"Added key: store_based_barrier_key:1 to store for rank: %(n)s (world_size=%(n)s)\n",
                b"WorkNCCL(SeqNum=%(n)s, OpType=ALLREDUCE, NumelIn=%(n)s, NumelOut=%(n)s, Timeout(ms)=%(n)s) ran for "
                b"%(n)s milliseconds before timing out.\n",
                b"ranks %(n)s-%(n)s did not respond\n",
            )
        ),
    })  # fmt: skip

    analysis = analyze(tmp_path)
    assert analysis.timeline.height == len(analysis.events)
    assert len(analysis.ranks) < 1000
    assert program("analyze", tmp_path, "--json", "-").status == 0


# -- files that change under the reader -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100])
def test_a_file_that_is_cut_while_it_is_read_is_noted(tmp_path, size):
    """Bytes of a memory map that are gone would end the whole process by SIGBUS."""
    write(tmp_path, {"b.log": SHAPE_LOG * 40})

    def rotate(_done: int, _total: int) -> None:
        os.truncate(tmp_path / "b.log", size)

    verdict = analyze(tmp_path, progress=rotate).verdict
    assert verdict.missing == ["b.log: could not be read to the end (it became shorter while it was read)"]


def test_a_buffer_refuses_to_touch_what_is_gone(tmp_path):
    write(tmp_path, {"a.log": b"line\n" * 9999})
    with LogBuffer(tmp_path / "a.log") as buffer:
        os.truncate(tmp_path / "a.log", 10)
        for touch in (buffer.line_bounds, buffer.line_number):
            with pytest.raises(OSError, match="shorter"):
                touch(40_000)
        with pytest.raises(OSError, match="shorter"):
            list(buffer.lines_before(40_000, 3))


def test_a_file_that_vanishes_before_it_is_read_is_noted_and_the_rest_is_read(tmp_path):
    write(tmp_path, {"a.log": SHAPE_LOG, "b.log": SHAPE_LOG})
    signatures = shipped_signatures()

    with collect([tmp_path]) as sources:
        (tmp_path / "a.log").unlink()
        readings = read_sources(sources, Scanners(signatures, None), signatures)

        assert [reading.source.name for reading in readings] == ["b.log"]
        assert [(n.source, n.what) for n in sources.notes] == [
            ("a.log", "could not be read to the end (No such file or directory)")
        ]


def test_a_file_that_vanishes_once_it_was_read_still_counts(tmp_path):
    write(tmp_path, {"a.log": SHAPE_LOG})

    def remove(_done: int, _total: int) -> None:
        (tmp_path / "a.log").unlink()

    verdict = analyze(tmp_path, progress=remove).verdict
    assert (verdict.category, verdict.ranks) == (SHAPE_TRUTH["category"], SHAPE_TRUTH["ranks"])


def test_a_file_that_grows_is_read_up_to_where_it_was(tmp_path):
    write(tmp_path, {"a.log": SHAPE_LOG})

    def go_on(_done: int, _total: int) -> None:
        with (tmp_path / "a.log").open("ab") as file:
            file.write(SHAPE_LOG)

    assert analyze(tmp_path, progress=go_on).verdict.category == SHAPE_TRUTH["category"]


# -- nothing in a log is obeyed -------------------------------------------------------------------------------

# Everything that could steer a terminal, a template, a page or a spreadsheet.
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil/\x07link\x1b]8;;\x07\x1b[31m \x9b2J\x9d0;x\x9c \x07\x08 \u202egpj.exe "
    "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} {% raw %} [bold red]x[/] </pre></style> & \"'"
)


def hostile_log() -> bytes:
    name = "/w/<script>train.py"
    lines = [
        "Traceback (most recent call last):", f'  File "{name}", line 3, in <module>', "    boom()", f"ValueError: {HOSTILE}"
    ]  # fmt: skip
    return "".join(f"[rank1]: {line}\n" for line in lines).encode() + f"{HOSTILE}\n".encode()


def hostile_run(folder: Path) -> Path:
    return write(folder, {"a\x1b[31m<b>\u202e.log": hostile_log(), "b.log": b"step 1 loss 0.5\n"})


def steering(text: str) -> set[str]:
    """The characters of a text that a terminal might take for a command, or that turn the order of letters."""
    return {letter for letter in text if not letter.isprintable() and letter != "\n"}


@pytest.mark.parametrize(
    "arguments",
    [("analyze",), ("analyze", "--json", "-"), ("analyze", "--html", "-"), ("timeline",), ("timeline", "--format", "json")],
    ids=" ".join,
)  # fmt: skip
def test_no_escape_of_a_log_reaches_the_output(tmp_path, program, arguments):
    ran = program(*arguments, hostile_run(tmp_path))

    assert ran.status == 0 and "ValueError" in ran.out
    assert not steering(ran.out)


def test_the_json_of_a_hostile_log_still_holds_its_text(tmp_path, program):
    text = program("analyze", hostile_run(tmp_path), "--json", "-").report["verdict"]["evidence"][0]["text"]

    assert text == f"[rank1]: ValueError: {HOSTILE}"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.text: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.handlers += [
            name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")
        ]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _page(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    return page


def test_markup_and_templates_in_a_log_stay_text_on_the_page(tmp_path, program):
    hostile = _page(program("analyze", hostile_run(tmp_path / "a"), "--html", "-").out)
    tame = hostile_log().replace(HOSTILE.encode(), b"boom").replace(b"<script>", b"")
    harmless = _page(program("analyze", write(tmp_path / "b", {"a.log": tame, "b.log": b"x\n"}), "--html", "-").out)

    for tag in ("script", "img", "style", "pre", "b", "link", "iframe"):
        assert hostile.tags.get(tag, 0) == harmless.tags.get(tag, 0), tag
    assert not hostile.handlers
    text = "".join(hostile.text)
    assert "<script>alert(1)</script>" in text and "{{ 7*7 }}" in text and "49" not in text.split("{{ 7*7 }}")[0][-20:]


def test_a_terminal_gets_the_timeline_of_a_hostile_log_spelled_out(tmp_path):
    """CSV is data as it is for a file or a pipe; on a terminal it is shown."""
    import pty

    ours, theirs = pty.openpty()
    run = subprocess.run(
        [sys.executable, "-m", "logforensics", "timeline", str(hostile_run(tmp_path)), "--format", "csv"],
        stdout=theirs, stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    os.close(theirs)
    shown = read_terminal(ours)
    assert run.returncode == 0, run.stderr
    assert "ValueError" in shown.decode() and not steering(shown.decode().replace("\r\n", "\n"))


def test_a_line_to_try_is_shown_without_its_escapes(program):
    ran = program("parsers", "try", f"[rank1]: ValueError: {HOSTILE}")

    assert ran.status == 0 and not steering(ran.out)


def test_the_json_report_is_one_document_whatever_the_log_holds(tmp_path, program):
    write(
        tmp_path,
        {"a.log": b'[rank1]: ValueError: \xff\xfe\xed\xa0\x80 \\ud800 "}]\n' + b"fine\n" * 999 + bytes(range(256))},
    )

    assert json.loads(program("analyze", tmp_path, "--json", "-").out)["schema"] == "logforensics.analysis/1"
