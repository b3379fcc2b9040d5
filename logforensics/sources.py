"""Finds the files that make up a run: folders, globs, archives, compressed files, standard input.

Every source ends as a file on disk that can be memory-mapped: what is compressed or comes through a pipe is
spooled into a temporary folder, never beside the logs. Nothing here raises for a bad file: it becomes a
note, and the rest is read.
"""

from __future__ import annotations

import codecs
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO

import regex

from logforensics.language import _
from logforensics.layout import Hints, hints_of, number_siblings
from logforensics.model import Note
from logforensics.paths import Files, InputError, natural, printable
from logforensics.sniff import SNIFF_BYTES, binary_by_name, is_data_zip, kind_of, utf16_of
from logforensics.unpack import (
    Limit,
    Member,
    Stream,
    decompressed,
    file_stream,
    microseconds,
    packing_of,
    tar_members,
    zip_members,
)
from logforensics.wrapped import unwrapper_of

__all__ = ["InputError", "Source", "Sources", "collect"]

_MOST_NESTED = 6
_COMPRESSED_NAME = regex.compile(r"\.(?:gz|zst|bz2|xz)$")
# Kinds that can tell of a run; without any of these there is nothing to analyse.
_TELLING = {"log", "error_file", "flight_recorder"}


@dataclass(slots=True)
class Source:
    """One file to read. ``name`` is what people see; ``path`` is where its bytes are now."""

    name: str
    path: Path
    size: int
    mtime_us: int
    kind: str  # "log" | "error_file" | "config" | "flight_recorder"
    hints: Hints


@dataclass(slots=True)
class Sources:
    """What was found, and a note for everything that was not read. Use as a context manager."""

    found: list[Source] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _binary: list[str] = field(default_factory=list)
    _spool: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Sources:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spool is not None:
            self._spool.cleanup()

    @property
    def spooled(self) -> bool:
        """Whether some sources lie in a temporary folder that goes away with this object."""
        return self._spool is not None

    def spool_path(self) -> Path:
        """Return a new path in this run's temporary folder."""
        if self._spool is None:
            self._spool = tempfile.TemporaryDirectory(prefix="logforensics-")
        handle, name = tempfile.mkstemp(dir=self._spool.name)
        os.close(handle)
        return Path(name)

    def note(self, source: str, what: str) -> None:
        """Record that something was skipped or cut, for the verdict's "missing"."""
        self.notes.append(Note(source, what))

    def note_binary(self, source: str) -> None:
        """Record a file that is no text; a run's folder may hold thousands, so they share one note."""
        self._binary.append(source)

    def add(self, source: Source) -> None:
        """Take a source; one whose name is taken (an archive may hold a name twice) gets another."""
        number, name = 2, source.name
        while source.name in self._names:
            source.name, number = f"{name} ({number})", number + 1
        self._names.add(source.name)
        self.found.append(source)

    def finish(self) -> None:
        """Put the sources in order and write the shared note."""
        self.found.sort(key=lambda source: natural(source.name))
        number_siblings({source.name: source.hints for source in self.found if source.kind == "log"})
        if len(self._binary) == 1:
            self.note(self._binary[0], _("a binary file, not a log; skipped"))
        elif self._binary:
            self.note(
                self._binary[0],
                _("a binary file, not a log; skipped, like {count} more").format(count=f"{len(self._binary) - 1:,}"),
            )


@dataclass(frozen=True, slots=True)
class _Item:
    """Bytes on their way to become a source.

    ``name`` is what people see, ``inner`` the name without what only says how it is packed; ``path`` is where the
    bytes lie, None while they have to be spooled.
    """

    name: str
    inner: str
    stream: Stream
    path: Path | None
    mtime_us: int
    limit: Limit
    depth: int = 0
    explicit: bool = False


def collect(paths: Iterable[str | Path]) -> Sources:
    """Find every readable source under ``paths`` (files, folders, globs, archives, "-").

    A file that is reached twice is read once. Raises InputError when a path does not exist, or when nothing at all can
    be read.
    """
    sources = Sources()
    try:
        files = Files(paths, sources.note)
        if files.standard_input:
            _add_stdin(sources)
        for path, name, explicit in files:
            _add_file(sources, path, name, explicit)
        sources.finish()
        if not any(source.kind in _TELLING for source in sources.found):
            if sources.notes:
                first = sources.notes[0]
                raise InputError(f"{files.where}: nothing readable; {first.source}: {first.what}")
            raise InputError(f"{files.where}: no log file here; give the folder that holds the run's output")
    except BaseException:
        sources.__exit__(None, None, None)
        raise
    return sources


def _add_file(sources: Sources, path: Path, name: str, explicit: bool) -> None:
    try:
        status = path.stat()
        if explicit and stat.S_ISFIFO(status.st_mode):  # <(zcat run.log.gz)
            with path.open("rb") as pipe:
                _add_pipe(sources, name, pipe)
        elif not stat.S_ISREG(status.st_mode):
            sources.note(name, _("not a regular file; skipped"))
        elif not explicit and binary_by_name(path.name):
            sources.note_binary(name)
        else:
            _add_regular(sources, path, name, status.st_size, microseconds(status.st_mtime), explicit)
    except OSError as error:
        if path.is_symlink() and not path.exists():
            sources.note(name, _("a link that leads nowhere; skipped"))
        else:
            sources.note(name, _("cannot be read ({reason}); skipped").format(reason=error.strerror or error))


def _add_regular(sources: Sources, path: Path, name: str, size: int, mtime_us: int, explicit: bool) -> None:
    path.open("rb").close()  # says at once why not
    # a file without a size may be one that the system makes while it is read, without an end
    stream = file_stream(path) if size else Stream([])
    _add(sources, _Item(name, name, stream, path, mtime_us, Limit(size), explicit=explicit))
    if stream.trouble:
        sources.note(name, _("{trouble}; read up to there").format(trouble=stream.trouble))


def _add_stdin(sources: Sources) -> None:
    if sys.stdin is None:
        raise InputError("-: standard input is closed; pipe a log into it")
    size = _add_pipe(sources, "stdin", sys.stdin.buffer)
    if not size:
        raise InputError("-: nothing came through standard input; pipe a log into it")


def _add_pipe(sources: Sources, name: str, pipe: IO[bytes]) -> int:
    """Spool what a pipe gives until it ends: only then is it known what it is. Return its size."""
    path = sources.spool_path()
    try:
        with path.open("wb") as target:
            shutil.copyfileobj(pipe, target, 1 << 20)
    except OSError as error:
        sources.note(
            name, _("cannot be read to its end ({reason}); read up to there").format(reason=error.strerror or error)
        )
    size = path.stat().st_size
    _add_regular(sources, path, name, size, microseconds(time.time()), True)
    return size


def _add(sources: Sources, item: _Item) -> None:
    """Add a file, or what is packed in it."""
    head = item.stream.peek(SNIFF_BYTES)
    packing = packing_of(head)
    if packing is None or (packing == "zip" and is_data_zip(head)):
        _add_plain(sources, item, head)
    elif item.depth == _MOST_NESTED:
        sources.note(
            item.name,
            _("packed more than {count} times over; unpack it and give what is in it").format(count=_MOST_NESTED),
        )
    elif packing in {"tar", "zip"}:
        _add_archive(sources, item, packing)
    else:
        stream = decompressed(item.stream, item.limit)
        before = len(sources.found)
        inner = regex.sub(r"\.tgz$", ".tar", _COMPRESSED_NAME.sub("", item.inner))
        _add(sources, replace(item, inner=inner, stream=stream, path=None, depth=item.depth + 1))
        if stream.trouble:
            got = _("read up to there") if len(sources.found) > before else _("nothing could be unpacked")
            sources.note(item.name, _("{trouble}; {got}").format(trouble=stream.trouble, got=got))


def _add_archive(sources: Sources, item: _Item, packing: str) -> None:
    said: list[str] = []
    members: Iterator[Member]
    if packing == "tar":
        members = tar_members(item.stream, said.append)
    else:
        path = item.path or _spooled(sources, item)
        members = zip_members(path, item.limit, said.append)
    leading_out: list[str] = []
    cut = None
    for member in members:
        parts = [part for part in member.name.replace("\\", "/").split("/") if part not in {"", "."}]
        if ".." in parts or member.name.startswith("/"):
            leading_out.append(printable(member.name))
        inside = printable("/".join(part for part in parts if part != ".."))
        name = f"{item.name}!{inside}"
        if member.stream is None:
            sources.note(name, _("{trouble}; skipped").format(trouble=member.trouble))
        elif binary_by_name(inside):
            sources.note_binary(name)
        else:
            inner = f"{item.inner}!{inside}"
            mtime_us, depth = member.mtime_us or item.mtime_us, item.depth + 1
            _add(sources, _Item(name, inner, member.stream, None, mtime_us, item.limit, depth))
            if member.stream.trouble:
                cut = member.stream.trouble
                sources.note(name, _("{cut}; read up to there").format(cut=cut))
    if leading_out:
        more = _(" and {count} more").format(count=len(leading_out) - 1) if len(leading_out) > 1 else ""
        sources.note(
            item.name,
            _("members with names that lead out of it ({name}{more}); read as if inside").format(
                name=leading_out[0], more=more
            ),
        )
    if said and (packing == "zip" or not (cut or item.stream.trouble)):  # else the cut itself has been told
        sources.note(item.name, said[0])


def _add_plain(sources: Sources, item: _Item, head: bytes) -> None:
    codec = utf16_of(head)
    if codec:
        head = head.decode(codec, "replace").encode()
    elif item.path is not None and head and not head.strip(b"\0"):
        head = _tail(item.path)  # a rotated log goes on where it was: before that, nothing
    kind = kind_of(item.inner, head, explicit=item.explicit)
    if unwrap := unwrapper_of(head):
        item, kind = replace(item, stream=unwrap(item.stream), path=None), "log"
    if kind == "binary":
        sources.note_binary(item.name)
        return
    if not head and (kind != "log" or item.stream.trouble):
        return
    path = item.path
    if codec or path is None:
        path = _spooled(sources, item, codec)
    sources.add(Source(item.name, path, path.stat().st_size, item.mtime_us, kind, hints_of(item.inner)))


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - SNIFF_BYTES))
        return file.read()


def _spooled(sources: Sources, item: _Item, codec: str | None = None) -> Path:
    """Copy a stream into the temporary folder, as UTF-8 where a codec is given; return the copy's path."""
    path = sources.spool_path()
    decoder = codecs.getincrementaldecoder(codec)("replace") if codec else None
    try:
        with path.open("wb") as target:
            while block := item.stream.read():
                target.write(decoder.decode(block).encode("utf-8", "replace") if decoder else block)
    except OSError as error:
        sources.note(
            item.name,
            _("no room to unpack it ({reason}); read up to there; set TMPDIR").format(reason=error.strerror or error),
        )
    return path
