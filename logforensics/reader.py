"""Reads one source: scans it, assembles records around what was found, and gives its events.

The whole file is searched for failures; progress is read from the head, the tail and around failures only,
so a healthy log costs one scan. A line that no signature wants never becomes a Python object.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logforensics.buffer import LogBuffer
from logforensics.callsites import activity_of
from logforensics.carriers import learn_carrier
from logforensics.clock import Stamp, parse_stamp
from logforensics.counters import Counted, learn_steps
from logforensics.engine import build_engine, scan_buffer
from logforensics.fold import Fold, HitLine
from logforensics.model import Event
from logforensics.places import FoundEvent, LineIndex
from logforensics.prefixes import Peeled, clean, peel, segments
from logforensics.records import Traceback, assemble_tracebacks, following, preceding
from logforensics.signatures import Match, Signature, SignatureSet
from logforensics.sources import Source
from logforensics.stamps import StampFinder
from logforensics.windows import MANY_RANKS, ONE_RANK, Windows, first_and_last

if TYPE_CHECKING:
    from logforensics.configs import Config
    from logforensics.flight_recorder import Dump

_HEADER_TEXT = b"Traceback (most recent call last):"
_FAILING = {"cause", "either", "symptom", "pointer"}


_MOST_COUNTED = 4000
# Unclaimed lines around which a prefix is looked for, and lines read at each.
_MOST_SAMPLED, _SAMPLED_LINES = 8, 12
_MOST_MESSAGE = 600
_TAIL_LINES = 240

# Columns of an event that a captured field fills directly.
_COLUMNS = {"rank": "rank", "local_rank": "local_rank", "pid": "pid", "host": "node"}


@dataclass(slots=True)
class RawEvent:
    """An event whose stamp still lacks its year. ``before``/``after`` are the stamps around an unstamped one.

    ``loose``: the stamp after it is another writer's, so it is a bound only if the file was written live.
    """

    event: Event
    stamp: Stamp | None = None
    before: Stamp | None = None
    after: Stamp | None = None
    loose: bool = False
    written_by: dict[str, Any] = field(default_factory=dict)  # what the prefixes said of the writer

    def bracket(self, stamps: StampFinder, start: int, end: int, writer: Peeled) -> None:
        """Find the stamps around the line at ``start`` to ``end``."""
        self.before, _other = stamps.near(start, writer, back=True)
        self.after, self.loose = stamps.near(end, writer, back=False)


@dataclass(slots=True)
class Reading:
    """What one source gave. ``hit_lines`` counts the lines that some signature wanted, floods included.

    ``dump`` and ``config`` are set where the source is no log but a flight recorder's dump or a configuration.
    """

    source: Source
    events: list[RawEvent] = field(default_factory=list)
    hit_lines: int = 0
    first_stamp: Stamp | None = None
    last_stamp: Stamp | None = None
    dump: Dump | None = None
    config: Config | None = None


class Scanners:
    """The compiled form of a signature set: one engine for the whole file, one for the windows.

    ``whole`` and ``window`` tell for each text of the engine which signatures need it.
    """

    def __init__(self, signatures: SignatureSet, cache: Path | None, *, plain: bool = False) -> None:
        self.set = signatures
        fast = [s for s in signatures.signatures if s.full_scan and not s.fallback]
        near = [s for s in signatures.signatures if not s.full_scan and not s.fallback]
        whole_texts, self.whole = _needed(fast)
        self.header = len(whole_texts)
        self.whole_engine = build_engine([*whole_texts, _HEADER_TEXT], cache, plain=plain)
        window_texts, self.window = _needed(near)
        self.window_engine = build_engine(window_texts, cache, plain=plain) if window_texts else None
        self.counts_steps = [any(s.role == "progress" for s in needed) for needed in self.window]

    def clone(self) -> Scanners:
        """Return the same scanners for another thread."""
        other = copy.copy(self)
        other.whole_engine = self.whole_engine.clone()
        other.window_engine = self.window_engine.clone() if self.window_engine else None
        return other


def _needed(signatures: list[Signature]) -> tuple[list[bytes], list[list[Signature]]]:
    """Return the texts that signatures need, and for each text who needs it."""
    by_text: dict[str, list[Signature]] = {}
    for signature in signatures:
        for text in signature.scan:
            by_text.setdefault(text, []).append(signature)
    return [text.encode() for text in by_text], list(by_text.values())


def _candidates(texts: frozenset[int], needed: list[list[Signature]]) -> list[Signature]:
    """Return the signatures that may claim a line with these texts, each once."""
    found = {signature.name: signature for number in texts if number < len(needed) for signature in needed[number]}
    return list(found.values())


def read_source(source: Source, scanners: Scanners, progress: Callable[[int], None] | None = None) -> Reading:
    """Scan one log and return its events in file order. Raises OSError when the file cannot be read."""
    with LogBuffer(source.path) as buffer:
        return _SourceReader(source, scanners, buffer).read(progress)


class _SourceReader:
    """The steps of reading one file, and what they share."""

    def __init__(self, source: Source, scanners: Scanners, buffer: LogBuffer) -> None:
        self.source = source
        self.scanners = scanners
        self.buffer = buffer
        self.reading = Reading(source)
        self.index = LineIndex(source.path)
        self.stamps = StampFinder(buffer)
        self.one_rank = source.hints.rank is not None or source.hints.local_rank is not None
        self.reach = ONE_RANK if self.one_rank else MANY_RANKS

    def read(self, progress: Callable[[int], None] | None) -> Reading:
        fold = Fold(self.buffer)
        for hits in scan_buffer(self.scanners.whole_engine, self.buffer.data, self.buffer.size, progress=progress):
            fold.add(hits)
        lines = fold.lines()
        header = self.scanners.header
        headers = [line.start for line in lines if header in line.texts]
        self.reading.hit_lines = sum(line.repeats for line in lines)
        raw = self._failures(lines, headers)
        claimed = {item.event.offset for item in raw}
        unknown = [line for line in lines if line.start not in claimed]
        if unknown and (carrier := learn_carrier(self._around(unknown))):
            self.buffer.carrier = carrier
            again = self._failures(lines, headers)
            if len(again) > len(raw):
                raw = again
            else:
                self.buffer.carrier = None
        failures = sorted(event.event.offset for event in raw if event.event.role in _FAILING)
        windows = Windows(self.buffer, self.scanners.window_engine, self.scanners.counts_steps, self.reach, failures)
        for line in windows.lines(self.one_rank):
            raw += self._events_of(line, _candidates(line.texts, self.scanners.window), None)
        if self.source.hints.stream != "kernel" and not any(item.event.role == "progress" for item in raw):
            raw += self._learned(windows, {item.event.offset for item in raw})
        raw.sort(key=lambda item: item.event.offset)
        raw += self._last_lines({item.event.offset for item in raw})
        raw.sort(key=lambda item: item.event.offset)
        self._finish(raw)
        self.reading.events = raw
        return self.reading

    def _failures(self, lines: list[HitLine], headers: list[int]) -> list[RawEvent]:
        """Return the events of the lines that were found in the whole file, tracebacks put together."""
        tracebacks = assemble_tracebacks(self.buffer, headers)
        by_start = {block.exception_start: block for block in tracebacks}
        raw: list[RawEvent] = []
        claimed: set[int] = set()
        for line in lines:
            candidates = _candidates(line.texts, self.scanners.whole)
            for event in self._events_of(line, candidates, by_start.get(line.start)):
                raw.append(event)
                claimed.add(line.start)
        for block in tracebacks:
            if block.exception_start not in claimed:
                line = HitLine(block.exception_start, block.exception_end, frozenset())
                raw += self._events_of(line, self.scanners.set.fallbacks, block)
        return raw

    def _around(self, lines: list[HitLine]) -> Iterable[str]:
        """Yield lines without their known prefixes: around some that no signature claimed, and of the head."""
        starts: set[int] = set()
        chosen = [line.start for line in lines[:: max(1, len(lines) // _MOST_SAMPLED)]][:_MOST_SAMPLED]
        for place in (0, *chosen):
            starts.update(begin for begin, _ in self.buffer.lines_after(place - 1, _SAMPLED_LINES))
        for begin in sorted(starts):
            yield peel(clean(self.buffer.text(begin, self.buffer.line_bounds(begin)[1]))).text

    # -- one line -------------------------------------------------------------------------------------------

    def _events_of(self, line: HitLine, candidates: list[Signature], block: Traceback | None) -> Iterable[RawEvent]:
        if not candidates:
            return
        whole = clean(self.buffer.text(line.start, line.end, line.place))
        own = peel(whole, self.buffer.carrier)
        for part in segments(whole):
            peeled = own if part == whole else peel(part, self.buffer.carrier)
            if part != whole and not peeled.fields and not peeled.carrier:
                # a bar's tail or a glued line: the line's own prefixes still say who wrote it
                peeled.fields, peeled.carrier, peeled.stream = dict(own.fields), own.carrier, own.stream
                peeled.stamp = peeled.stamp or own.stamp
            match = self._claim(line, candidates, peeled)
            if match is not None:
                yield self._event(line, match, peeled, block)

    def _claim(self, line: HitLine, candidates: list[Signature], peeled: Peeled) -> Match | None:
        flat = [signature for signature in candidates if not signature.before and not signature.after]
        wide = [signature for signature in candidates if signature.before or signature.after]
        matches: list[Match] = []
        for text in peeled.readings:
            if (claimed := self.scanners.set.claim(flat, text)) is not None:
                peeled.text = text
                matches.append(claimed)
                break
        for signature in wide:
            texts = [peeled.text]
            if signature.after:
                texts += [p.text for _, _, p in following(self.buffer, line.end, peeled, signature.after)]
            if signature.before:
                earlier = [p.text for p in preceding(self.buffer, line.start, peeled, signature.before)]
                texts = earlier[::-1] + texts
            match = signature.match("\n".join(texts))
            if match is not None:
                matches.append(match)
        return min(matches, key=lambda m: (m.start - m.end, m.signature.name)) if matches else None

    def _event(self, line: HitLine, match: Match, peeled: Peeled, block: Traceback | None) -> RawEvent:
        signature = match.signature
        fields = {**match.fields}
        raw_time = fields.pop("time", None)
        hints = self.source.hints
        event = self._new_event(
            line.start,
            kind=signature.kind,
            signature=signature.name,
            role=signature.role,
            category=signature.category,
            message=" ".join(peeled.text.split())[:_MOST_MESSAGE],
            stream=signature.stream or hints.stream or peeled.stream or "stderr",
            attempt=hints.attempt or 0,
            repeats=line.repeats,
        )
        written_by = {key: value for key, value in peeled.fields.items() if key not in {"severity", "tid"}}
        for key, column in _COLUMNS.items():
            if key in fields:
                setattr(event, column, fields.pop(key))
                event.told.add(key)
            elif key in written_by:
                setattr(event, column, written_by[key])
        event.process_group = fields.pop("pg", None) or fields.pop("pg_id", None)
        event.sequence = fields.pop("seq", None)
        event.operation = fields.pop("op", None)
        if peeled.rank_mark:
            event.told.add("mark")
        if "severity" in peeled.fields:
            fields["severity"] = peeled.fields["severity"]
        if signature.activity:
            fields["activity"] = signature.activity
        if signature.phase:
            fields["phase"] = signature.phase
        if signature.scope != "rank":
            fields["scope"] = signature.scope
        if block is not None:
            self._add_traceback(event, fields, block)
        event.fields = fields
        stamp = parse_stamp(raw_time) if raw_time else None
        if stamp is None and peeled.stamp is not None:
            stamp = parse_stamp(peeled.stamp[1])
        raw = RawEvent(event, stamp=stamp, written_by=written_by)
        if stamp is None:
            raw.bracket(self.stamps, line.start, line.end, peeled)
        return raw

    def _new_event(self, offset: int, **columns: Any) -> FoundEvent:
        event = FoundEvent(source=self.source.name, line=-1, end_line=-1, offset=offset, **columns)
        event.index, event.end_offset = self.index, None
        return event

    def _add_traceback(self, event: FoundEvent, fields: dict[str, Any], block: Traceback) -> None:
        fields["raised"] = True
        fields["traceback_offset"] = block.header
        if block.where:
            fields["where"] = block.where
        activity = activity_of(block.frames)
        if activity:
            fields["activity"] = activity  # the place in the code is more exact than the message
        if block.nested:
            fields["nested"] = True
        if block.ignored and event.role in _FAILING:
            event.role = "noise"
        if block.chained:
            fields["chained"] = block.chained
        if block.end > block.exception_end:
            event.end_offset = block.end

    # -- progress -------------------------------------------------------------------------------------------

    def _learned(self, windows: Windows, claimed: set[int]) -> list[RawEvent]:
        """Return the first and the last lines of a progress that no signature knows, if the file has one."""
        found: list[RawEvent] = []
        counted = learn_steps(
            line for start, end in windows.spans for line in self._peeled(start, end) if line[0] not in claimed
        )
        for start, end in windows.spans:
            for low, high in windows.between_failures(start, end):
                kept: dict[Any, list[Counted]] = {}
                for line in counted:
                    if low <= line.start < high:
                        kept.setdefault(line.writer, []).append(line)
                found += [self._counted(line) for group in kept.values() for line in first_and_last(group)]
        return found

    def _peeled(self, start: int, end: int) -> Iterable[tuple[int, int, Peeled]]:
        for begin, stop in self.buffer.lines_after(start - 1, _MOST_COUNTED, end - start + 1):
            if stop > begin:
                yield begin, stop, peel(segments(clean(self.buffer.text(begin, stop)))[-1], self.buffer.carrier)

    def _counted(self, line: Counted) -> RawEvent:
        raw = self._plain_event(
            line.start, line.end, line.peeled, kind="progress", signature="progress/learned", role="progress"
        )
        raw.event.fields = {"step": line.step, "activity": line.activity}
        return raw

    def _last_lines(self, known: set[int]) -> list[RawEvent]:
        """Return the last line of each writer: of a rank whose log simply stops it is the only evidence."""
        found: list[RawEvent] = []
        seen: set[Any] = set()
        for start, end in self.buffer.lines_before(self.buffer.size + 1, _TAIL_LINES, self.reach.tail):
            if end <= start:
                continue
            text = self.buffer.text(start, end)
            part = segments(clean(text))[-1]
            if not part.strip():
                continue
            peeled = peel(part, self.buffer.carrier)
            identity = tuple(sorted((k, v) for k, v in peeled.fields.items() if k in {"rank", "local_rank", "task"}))
            if identity in seen or (seen and not identity):
                continue
            seen.add(identity)
            if start not in known:
                found.append(
                    self._plain_event(start, end, peeled, kind="notice", signature="log/last-line", role="context")
                )
            if self.one_rank:
                break
        return found

    def _plain_event(self, start: int, end: int, peeled: Peeled, **columns: Any) -> RawEvent:
        """Return an event that no signature made."""
        event = self._new_event(
            start,
            message=" ".join(peeled.text.split())[:_MOST_MESSAGE],
            stream=self.source.hints.stream or peeled.stream or "stderr",
            attempt=self.source.hints.attempt or 0,
            **columns,
        )
        for key, column in _COLUMNS.items():
            if key in peeled.fields:
                setattr(event, column, peeled.fields[key])
        raw = RawEvent(event, written_by=dict(peeled.fields))
        if peeled.stamp is not None:
            raw.stamp = parse_stamp(peeled.stamp[1])
        if raw.stamp is None:
            raw.bracket(self.stamps, start, end, peeled)
        return raw

    # -- places ---------------------------------------------------------------------------------------------

    def _finish(self, raw: list[RawEvent]) -> None:
        stamps = [item.stamp for item in raw if item.stamp is not None]
        if stamps:
            self.reading.first_stamp, self.reading.last_stamp = stamps[0], stamps[-1]
