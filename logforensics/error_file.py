"""Reads torchelastic's ``error.json`` (written for scripts whose main is decorated with ``@record``).

Shape: torch/distributed/elastic/multiprocessing/errors/error_handler.py. The time stamp is whole epoch
seconds, in UTC, while the logs around usually have local time; it is therefore kept as a fact and the event
is placed by its neighbours.
"""

from __future__ import annotations

import json
from typing import Any

import regex

from logforensics.callsites import activity_of
from logforensics.language import _
from logforensics.model import Event
from logforensics.reader import RawEvent, Reading
from logforensics.records import Frame
from logforensics.signatures import SignatureSet
from logforensics.sources import Source

_MOST_BYTES = 4 << 20
_FRAME = regex.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')


class ErrorFileError(ValueError):
    """The file is no torchelastic error file; the text says why."""


def read_error_file(source: Source, signatures: SignatureSet) -> Reading:
    """Return the one event of an error file, claimed by the same signatures as a log line.

    Raises ErrorFileError when the content is not that of an error file.
    """
    text, stack, stamp = _content(source)
    candidates = [signature for signature in signatures.signatures if not signature.fallback]
    match = signatures.claim(candidates, text) or signatures.claim(signatures.fallbacks, text.split("\n")[0])
    if match is None:
        raise ErrorFileError(_("its message is no exception that is known"))
    signature, fields = match.signature, dict(match.fields)
    hints = source.hints
    event = Event(
        source=source.name,
        line=1,
        end_line=1,
        offset=0,
        kind=signature.kind,
        signature=signature.name,
        role=signature.role,
        category=signature.category,
        message=" ".join(text.split("\n")[0].split())[:600],
        stream="error_file",
        attempt=hints.attempt or 0,
        rank=fields.pop("rank", None),
        local_rank=hints.local_rank,
        process_group=fields.pop("pg", None),
        sequence=fields.pop("seq", None),
        operation=fields.pop("op", None),
    )
    frames = [Frame(m["path"], int(m["line"]), m["function"]) for m in _FRAME.finditer(stack)]
    activity = activity_of(frames)
    if activity:
        fields["activity"] = activity
    fields.pop("time", None)
    fields["raised"] = True
    fields["error_file"] = True
    if stamp is not None:
        fields["epoch_seconds"] = stamp
    event.fields = fields
    return Reading(source, [RawEvent(event)], hit_lines=1)


def _content(source: Source) -> tuple[str, str, int | None]:
    if source.size > _MOST_BYTES:
        raise ErrorFileError(_("too large for an error file"))
    try:
        table: Any = json.loads(source.path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        raise ErrorFileError(_("not valid JSON ({reason})").format(reason=error)) from error
    message = table.get("message") if isinstance(table, dict) else None
    if isinstance(message, str):
        return message, "", None
    if not isinstance(message, dict) or not isinstance(message.get("message"), str):
        raise ErrorFileError(_('it has no "message"'))
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    stamp = str(extra.get("timestamp", ""))
    return message["message"], str(extra.get("py_callstack", "")), int(stamp) if stamp.isdecimal() else None
