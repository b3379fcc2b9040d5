"""Logs whose lines a carrier put into JSON: the lines come out, with who wrote them and when, at their line number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logforensics import analyze
from logforensics.prefixes import peel
from logforensics.unpack import Stream
from logforensics.wrapped import unwrapper_of

FIXTURE = Path(__file__).parents[1] / "fixtures" / "ddp-shape-combined-info-cpploginfo" / "logs" / "train.log"


def unwrapped(content: bytes) -> list[str]:
    unwrap = unwrapper_of(content[:8192])
    assert unwrap is not None
    stream = unwrap(Stream([content[:100], content[100:]]))
    out = b""
    while block := stream.read():
        out += block
    return out.decode().splitlines()


def docker(line: str, stream: str = "stderr", when: str = "2026-11-30T07:00:00.123456789Z") -> bytes:
    """A line as moby's json-file driver writes it: Go escapes <, > and &, and control characters."""
    text = json.dumps(line, ensure_ascii=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'{{"log":{text},"stream":"{stream}","time":"{when}"}}\n'.encode()


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: boom",
        '  File "/work/train.py", line 12, in <module>',
        "\tindented & \x1b[31mcoloured\x1b[0m, a path C:\\new\\table",
        "what: ▏ 🏖️ \\",
        "",
    ],
)
def test_a_line_comes_out_of_docker_as_it_was_written(line: str):
    (text,) = unwrapped(docker(line + "\n"))

    peeled = peel(text)
    assert peeled.text == line
    assert peeled.stamp == ("cri", "2026-11-30T07:00:00.123456789Z")
    assert text.split(" ")[1:3] == ["stderr", "F"]


def test_a_part_of_a_long_line_is_marked_as_such():
    first, last = unwrapped(docker("x" * 50, when="2026-11-30T07:00:00Z") + docker("y\n", when="2026-11-30T07:00:00Z"))

    assert first == "2026-11-30T07:00:00.0Z stderr P " + "x" * 50
    assert last == "2026-11-30T07:00:00.0Z stderr F y"


def test_labels_and_damaged_lines_of_docker_do_no_harm():
    labelled = b'{"log":"a\\n","stream":"stdout","attrs":{"tag":"train"},"time":"2026-11-30T07:00:00.1+00:00"}\n'
    broken = b'{"log":"cut off in mid-'

    assert unwrapped(labelled + b"no JSON\n" + broken) == [
        "2026-11-30T07:00:00.1+00:00 stdout F a",
        "no JSON",
        '{"log":"cut off in mid-',
    ]


@pytest.mark.parametrize("name", ["4f5a-json.log", "trainer.json"])
def test_a_run_in_docker_is_diagnosed_like_the_same_run_outside(tmp_path: Path, name: str):
    plain = analyze(FIXTURE, use_cache=False).verdict
    path = tmp_path / name
    path.write_bytes(b"".join(docker(line + "\n") for line in FIXTURE.read_text().split("\n")[:-1]))

    inside = analyze(tmp_path, use_cache=False).verdict

    assert (inside.category, inside.ranks) == (plain.category, plain.ranks) == ("shape_mismatch", [1])
    assert inside.evidence[0].line == plain.evidence[0].line


def entry(message: object, **fields: object) -> bytes:
    own = {"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1796022000123456", "_HOSTNAME": "node-1", **fields}
    return json.dumps({**own, "MESSAGE": message}).encode() + b"\n"


def test_a_journal_tells_host_program_and_time():
    (text,) = unwrapped(entry("boom", SYSLOG_IDENTIFIER="slurmd", _PID="812"))

    peeled = peel(text)
    assert peeled.text == "boom"
    assert peeled.fields == {"host": "node-1", "name": "slurmd", "pid": 812}
    assert peeled.stamp == ("syslog", "2026-11-30T07:00:00.123456+00:00")


def test_a_journal_entry_without_a_pid_or_of_several_lines_is_read():
    assert [peel(text).text for text in unwrapped(entry("one\ntwo", _COMM="my prog"))] == ["one", "two"]
    assert unwrapped(entry([98, 111, 111, 109, 255])) == [
        "<30>1 2026-11-30T07:00:00.123456+00:00 node-1 - - - - boom\ufffd"
    ]
    assert [peel(text).text for text in unwrapped(entry(None) + b"[1]\n{broken\n")] == ["", "[1]", "{broken"]


def test_a_kernel_line_in_a_journal_is_the_kernels(tmp_path: Path):
    killed = "Memory cgroup out of memory: Killed process 8503 (python) total-vm:1000kB, anon-rss:900kB"
    (tmp_path / "journal.json").write_bytes(entry("boot") + entry(killed, _TRANSPORT="kernel"))

    events = analyze(tmp_path, use_cache=False).events

    found = [event for event in events if event.signature == "kernel/oom-killed-cgroup"]
    assert [(event.line, event.node, event.stream, event.pid) for event in found] == [(2, "node-1", "kernel", 8503)]


@pytest.mark.parametrize("head", [b"", b"{}\n", b'{"message": {"message": "boom"}}', b'{"loss": 0.5}\n', b"step 1\n"])
def test_other_files_are_left_alone(head: bytes):
    assert unwrapper_of(head) is None
