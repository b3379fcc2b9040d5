"""Reads the dumps of torch's flight recorder: what each rank's process groups were asked to do, call by call.

Shapes: torch/csrc/distributed/c10d/FlightRecorder*.hpp, versions 2.0 to 2.10. Pickled dumps are read by a machine
that can build plain values only (``safe_pickle``). Every key is optional here: versions added, renamed and dropped
some, and other backends leave some out. Which call matters is not decided here (``correlate/recorder.py``).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import regex

from logforensics.language import _
from logforensics.model import Note
from logforensics.paths import printable
from logforensics.records import Frame
from logforensics.safe_pickle import MOST_BYTES, UnsafePickleError, load_plain
from logforensics.sources import Source

_MOST_FRAMES = 100
_MOST_TENSORS = 4096
_MOST_DIMENSIONS = 32
_MOST_TEXT = 300
_MOST_RANKS = 1_000_000
_INT64 = 1 << 63
_NANOSECONDS = 1000
_STATES = {"scheduled", "started", "completed"}
_NUMBERS = regex.compile(r"\d{1,7}")
# The writer puts the global rank behind a prefix of the user's choice.
_RANK = regex.compile(r"(?:(?:^|[_.-])rank[_.-]?|[_.-])(?P<rank>\d{1,6})(?:\.(?:json|pkl|pickle|bin|dump))?$")
_RANK_INSIDE = regex.compile(r"(?:^|[_.-])rank[_.-]?(?P<rank>\d{1,6})(?=[_.-]|$)")
# What is left of a name without these is the host that somebody put there when collecting the dumps.
_NO_HOST = regex.compile(
    r"(?:^|[_.-])(?:(?:nccl|comm_lib|gloo|fr|flight_recorder)?_?trace|rank[_.-]?\d+|flight_recorder|dump)(?=[_.-]|$)"
    r"|\.(?:json|pkl|pickle|bin|dump)$"
)
_HOST = regex.compile(r"(?=.*[a-z])[a-z0-9][\w.-]{2,60}", regex.IGNORECASE)


class DumpError(ValueError):
    """The file is no flight recorder dump that can be read; the text says why."""


class Group(NamedTuple):
    """A process group as its members' dumps name it. ``ranks`` are global, in the group's order; () is unknown."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """The group as ProcessGroupNCCL's log lines name it: "0(default_pg)"."""
        told = self.description not in {"", "undefined"}
        return f"{self.name}({self.description})" if told else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One recorded call. ``sequence`` counts collectives of the group, or its point-to-point calls if ``p2p``.

    ``operation`` is spelled like torch's OpType in log lines (ALLREDUCE), ``target`` what a send or receive adds
    ("0->1", group ranks). ``state`` is how far the device got; ``retired`` says that the host no longer watches
    it: a retired call that did not complete has timed out or was aborted.
    """

    number: int  # place in the dump, from 1
    group: Group  # one object for all calls of a group in a dump
    sequence: int
    p2p: bool
    backend: str
    operation: str
    target: str
    state: str
    retired: bool
    created_us: int | None
    entry: dict[Any, Any]  # as the dump has it: of thousands of calls only a few are looked at closely

    @property
    def elements(self) -> tuple[int, int]:
        """How many elements the tensors that go in and those that come out have together."""
        return _elements(self.entry.get("input_sizes")), _elements(self.entry.get("output_sizes"))

    @property
    def types(self) -> set[str]:
        """The element types of all tensors, as torch names them: Float, BFloat16."""
        named = (self.entry.get("input_dtypes"), self.entry.get("output_dtypes"))
        found = {_text(item) for value in named if isinstance(value, list | tuple) for item in value[:_MOST_TENSORS]}
        return found - {""}

    @property
    def timeout_ms(self) -> int | None:
        """How long this call was to be waited for, in milliseconds."""
        return _number(self.entry.get("timeout_ms"))

    @property
    def frames(self) -> list[Frame]:
        """The stack of the call, as Python prints it: innermost last. The recorder writes it the other way round."""
        stack = self.entry.get("frames")
        if not isinstance(stack, list | tuple):
            return []
        return [
            Frame(_text(frame.get("filename")), _number(frame.get("line")) or 0, _text(frame.get("name")))
            for frame in reversed(stack[:_MOST_FRAMES])
            if isinstance(frame, dict)
        ]


@dataclass(slots=True)
class Dump:
    """One rank's dump. ``taken_us`` is when the file was written, as far as it kept that time."""

    source: str
    rank: int | None
    host: str | None
    attempt: int | None
    taken_us: int
    version: str
    library: str
    groups: dict[str, Group] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    @property
    def size_seen(self) -> int:
        """How many ranks the run has at least, by the groups that the dump names."""
        return max((max(group.ranks) + 1 for group in self.groups.values() if group.ranks), default=0)


def read_dump(source: Source, most_calls: int = 100_000) -> tuple[Dump, Note | None]:
    """Return a dump with its newest ``most_calls`` calls, and a note when some of these could not be read.

    Raises DumpError when the file is no dump, is broken, or would run code; OSError when it cannot be read.
    """
    table = _table(source)
    entries = table.get("entries", [])
    if not isinstance(entries, list) or not (entries or "pg_config" in table or "pg_status" in table):
        raise DumpError(_("it holds no recorded calls"))
    name = regex.split(r"[/!]", source.name)[-1]
    dump = Dump(
        source=source.name,
        rank=_rank_of(name, source.hints.rank),
        host=source.hints.node or _host_of(name),
        attempt=source.hints.attempt,
        taken_us=source.mtime_us,
        version=_text(table.get("version")),
        library=_text(table.get("comm_lib_version") or table.get("nccl_version")),
        groups=_groups(table.get("pg_config")),
    )
    broken = 0
    maker = _Calls(dump.groups)
    for number, entry in enumerate(entries[-most_calls:], max(0, len(entries) - most_calls) + 1):
        call = maker.call(entry, number)
        if call is None:
            broken += 1
        else:
            dump.calls.append(call)
    if broken and not dump.calls:
        raise DumpError(_("none of its entries is a recorded call"))
    note = Note(source.name, f"{broken} entries of this flight recorder dump are broken; left out") if broken else None
    return dump, note


def _table(source: Source) -> dict[str, Any]:
    if source.size > MOST_BYTES:
        raise DumpError(_("larger than {most} MB").format(most=MOST_BYTES >> 20))
    data = source.path.read_bytes()
    try:
        table = load_plain(data) if data[:1] == b"\x80" else json.loads(data)
    except UnsafePickleError as error:
        raise DumpError(str(error)) from error
    except RecursionError as error:
        raise DumpError(_("nested too deep")) from error
    except ValueError as error:
        raise DumpError(_("not valid JSON ({reason})").format(reason=error)) from error
    if isinstance(table, list):  # the first versions wrote the entries alone
        table = {"entries": table}
    if not isinstance(table, dict):
        raise DumpError(_("it holds no recorded calls"))
    return table


def _rank_of(name: str, hinted: int | None) -> int | None:
    if hinted is not None:
        return hinted
    match = _RANK_INSIDE.search(name) or _RANK.search(name)
    return int(match["rank"]) if match else None


def _host_of(name: str) -> str | None:
    rest = _NO_HOST.sub("", name).strip("_.-")
    return rest if rest != name and _HOST.fullmatch(rest) else None


# -- values of a foreign file ------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return printable(value[:_MOST_TEXT]) if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    """A whole number that fits a column. JSON dumps write some of them as texts."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64:
        return value
    return None


def _elements(sizes: Any) -> int:
    total = 0
    for size in sizes[:_MOST_TENSORS] if isinstance(sizes, list | tuple) else ():
        if isinstance(size, list | tuple):
            known = (item for item in size[:_MOST_DIMENSIONS] if isinstance(item, int) and 0 <= item < _INT64)
            total += math.prod(known)
    return min(total, _INT64 - 1)


def _groups(table: Any) -> dict[str, Group]:
    if not isinstance(table, dict):
        return {}
    found: dict[str, Group] = {}
    for key, entry in table.items():
        if isinstance(entry, dict):
            name = _text(entry.get("name")) or _text(key)
            found[name] = Group(name, _text(entry.get("desc")), _ranks(entry.get("ranks")))
    return found


def _ranks(value: Any) -> tuple[int, ...]:
    """The members of a group, written as the text "[0, 1]" or as a list."""
    if isinstance(value, list | tuple):
        value = " ".join(str(item) for item in value if _number(item) is not None)
    if not isinstance(value, str):
        return ()
    ranks = tuple(int(text) for text in _NUMBERS.findall(value[: 8 * _MOST_RANKS]))
    return ranks if all(rank < _MOST_RANKS for rank in ranks) else ()


# -- one call ----------------------------------------------------------------------------------------------------


class _Calls:
    """Makes the calls of one dump from its entries; names and groups that come again are looked up."""

    def __init__(self, groups: dict[str, Group]) -> None:
        self.known = groups
        self.names: dict[str, tuple[str, str, str]] = {}
        self.groups: dict[tuple[str, str, int | None], Group] = {}

    def call(self, entry: Any, number: int) -> Call | None:
        """Return one call; None when the entry is none."""
        name = entry.get("profiling_name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            return None
        backend, operation, target = self.names.get(name) or self.names.setdefault(name, _name(name))
        p2p = entry.get("is_p2p") is True or operation in {"SEND", "RECV"}
        sequence = _number(entry.get("p2p_seq_id")) if p2p else None
        if sequence is None:
            sequence = _number(entry.get("collective_seq_id"))
        if sequence is None:  # up to torch 2.3 there was one counter
            sequence = _number(entry.get("seq_id"))
        if sequence is None or not operation:
            return None
        created = _number(entry.get("time_created_ns"))
        state = entry.get("state")
        return Call(
            number,
            self.group(entry),
            sequence,
            p2p,
            backend,
            operation,
            target,
            state if isinstance(state, str) and state in _STATES else "scheduled",
            entry.get("retired") is True,
            created // _NANOSECONDS if created else None,
            entry,
        )

    def group(self, entry: dict[Any, Any]) -> Group:
        """Return the group that an entry names, with its members as far as the dump has them."""
        told = entry.get("process_group")
        name, description = "", ""
        if isinstance(told, list | tuple) and len(told) == 2:
            name, description = _text(told[0]), _text(told[1])
        elif isinstance(told, str):
            name = _text(told)
        key = name, description, None if name else _number(entry.get("pg_id"))
        return self.groups.get(key) or self.groups.setdefault(key, self._new_group(*key))

    def _new_group(self, name: str, description: str, number: int | None) -> Group:
        known = self.known.get(name)
        if known is not None and name:
            return Group(name, description or known.description, known.ranks)
        if not name:  # a wrapped group has no name of its own: the number keeps it apart from the others
            name = "" if number is None else str(number)
        # gloo notes its members before it has its name; of several such groups the last one's are left
        nameless = self.known.get("")
        whole = nameless is not None and nameless.ranks == tuple(range(len(nameless.ranks)))
        return Group(name, description, nameless.ranks if nameless and whole and description == "default_pg" else ())


def _name(name: str) -> tuple[str, str, str]:
    """Take "nccl:send 0->1" apart: backend, operation, partner. Operations are spelled as in torch's log lines."""
    backend, _colon, rest = _text(name).rpartition(":")
    operation, _blank, target = rest.partition(" ")
    return backend, operation.upper().replace("ALL_TO_ALL", "ALLTOALL").replace("ALL_", "ALL"), target
