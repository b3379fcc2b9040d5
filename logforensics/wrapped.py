"""Takes log lines out of the JSON that a carrier put each of them into: Docker's json-file, journalctl -o json.

What comes out has the shape of a carrier that the prefixes know (Kubernetes' CRI, syslog), so that time, stream, host
and program are kept. One line in is one line out, so line numbers hold; only a journal's message of several lines
becomes several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import regex

from logforensics.unpack import Stream

# A longer line is no carrier's: it is passed on in pieces, as it is.
_MOST_LINE = 8 << 20

# moby daemon/logger/jsonfilelog/jsonlog: these keys in this order; a line longer than 16 KiB comes in parts without \n
_DOCKER = regex.compile(
    rb'^\{"log":"(?P<text>(?:[^"\\\n]|\\.)*?)(?P<end>\\n)?","stream":"(?P<stream>std(?:out|err))"(?:,"attrs":\{[^\n{}]*\})?'
    rb',"time":"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?P<zone>Z|[+-]\d\d:\d\d)"\}\r?$',
    regex.MULTILINE,
)
_ESCAPE = regex.compile(rb"\\(?:u([0-9a-fA-F]{4})|(.))")
_SHORT = {b"n": b" ", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}


def unwrapper_of(head: bytes) -> Callable[[Stream], Stream] | None:
    """Return what takes the lines out of a file that begins with ``head``; None when it is no such file."""
    if head.startswith(b'{"log":"'):
        return lambda stream: Stream(_DOCKER.sub(_cri_line, lines) for lines in _whole_lines(stream))
    first = head.partition(b"\n")[0]
    if first.startswith(b"{") and (b'"__REALTIME_TIMESTAMP"' in first or b'"__CURSOR"' in first):
        return lambda stream: Stream(
            b"".join(_syslog_lines(line) for line in lines.splitlines(keepends=True)) for lines in _whole_lines(stream)
        )
    return None


def _whole_lines(stream: Stream) -> Iterator[bytes]:
    """Yield blocks that end where a line ends."""
    rest = b""
    while block := stream.read():
        lines, end, last = block.rpartition(b"\n")
        if end:
            yield rest + lines + end
            rest = last
        else:
            rest += last
            if len(rest) > _MOST_LINE:
                yield rest
                rest = b""
    if rest:
        yield rest


def _cri_line(match: Any) -> bytes:
    text: bytes = match["text"]
    if b"\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
    fraction = b"" if b"." in match["time"] else b".0"
    last = b"F" if match["end"] else b"P"
    line: bytes = b"%b%b%b %b %b %b" % (match["time"], fraction, match["zone"], match["stream"], last, text)
    return line


def _unescaped(match: Any) -> bytes:
    code, short = match.groups()
    if code:
        return chr(int(code, 16)).encode("utf-8", "replace")
    return _SHORT.get(short, bytes(short))


def _syslog_lines(line: bytes) -> bytes:
    """Return one entry of a journal as the lines of its message, each behind a syslog prefix (RFC 5424)."""
    try:
        entry = json.loads(line)
        when = datetime.fromtimestamp(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, UTC)
        message = entry["MESSAGE"]
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return line
    if isinstance(message, list):  # bytes that are no plain text are written as numbers
        codes = bytes(code for code in message if isinstance(code, int) and 0 <= code < 256)
        message = codes.decode("utf-8", "replace")
    host = _word(entry.get("_HOSTNAME"))
    stamp = when.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
    if entry.get("_TRANSPORT") == "kernel":
        prefix = f"{stamp} {host} kernel: "
    else:
        program = _word(entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM"))
        pid = entry.get("_PID") or entry.get("SYSLOG_PID")
        prefix = f"<30>1 {stamp} {host} {program} {pid if str(pid).isdigit() else '-'} - - "
    lines = str("" if message is None else message).split("\n")
    return "".join(f"{prefix}{text}\n" for text in lines).encode("utf-8", "replace")


def _word(value: Any) -> str:
    return regex.sub(r"[^\w./@-]", "_", str(value)) if value else "-"
