"""Finds the files that make up a run: folders, globs, archives, compressed files, standard input.

Every source ends as a file on disk that can be memory-mapped: what is compressed or comes through a pipe is
spooled into a temporary folder, never beside the logs. Nothing here raises for a bad file: it becomes a
note, and the rest is read.
"""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import io
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import regex

from logforensics.clock import SECOND
from logforensics.layout import Hints, hints_of
from logforensics.model import Note

# A file that unpacks to more than this AND by more than the ratio is a decompression bomb, not a log.
MOST_UNPACKED = 4 << 30
MOST_RATIO = 400
_COPY_BYTES = 1 << 20
_SNIFF_BYTES = 8192
_DEEPEST_ARCHIVE = 3

_TEXT_BUT_NO_LOG = (
    ".toml", ".yaml", ".yml", ".ini", ".cfg", ".py", ".sh", ".html", ".css", ".js", ".md", ".csv", ".ipynb",
)  # fmt: skip
_MAGIC_BINARY = (
    b"\x7fELF",
    b"\x89PNG",
    b"%PDF",
    b"\xff\xd8\xff",
    b"GIF8",
    b"\xca\xfe\xba\xbe",
    b"PK\x05\x06",
)
_PICKLE = regex.compile(rb"\x80[\x02-\x05]")


class InputError(ValueError):
    """The paths given cannot be used at all. The text is one line: what, where, what to do."""


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


def collect(paths: Iterable[str | Path]) -> Sources:
    """Find every readable source under ``paths`` (files, folders, globs, archives, "-").

    Raises InputError when a path does not exist, or when nothing at all can be read.
    """
    sources = Sources()
    roots = [root for path in paths for root in _expand(str(path))]
    if not roots:
        raise InputError("no path given; name a log file, a folder or '-'")
    base = _common_folder(roots)
    for root in roots:
        if root == "-":
            _add_stdin(sources)
        elif Path(root).is_dir():
            _add_folder(sources, Path(root), base)
        else:
            _add_file(sources, Path(root), _shown(Path(root), base))
    sources.found.sort(key=lambda source: _natural(source.name))
    if not sources.found:
        where = ", ".join(roots)
        if sources.notes:
            first = sources.notes[0]
            raise InputError(f"{where}: nothing readable; {first.source}: {first.what}")
        raise InputError(f"{where}: no log file here; give the folder that holds the run's output")
    return sources


def _expand(path: str) -> list[str]:
    if path == "-" or Path(path).exists():
        return [path]
    if glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if matches:
            return matches
        raise InputError(f"{path}: nothing matches this pattern")
    if Path(path).is_symlink():
        raise InputError(f"{path}: a link that leads nowhere; give the real path")
    raise InputError(f"{path}: no such file or folder; check the path")


def _common_folder(roots: list[str]) -> Path:
    folders = [Path(root).resolve() for root in roots if root != "-"]
    folders = [folder if folder.is_dir() else folder.parent for folder in folders]
    if not folders:
        return Path()
    try:
        return Path(os.path.commonpath(folders))
    except ValueError:  # different drives
        return Path()


def _shown(path: Path, base: Path) -> str:
    with contextlib.suppress(ValueError, OSError):
        # the parent is resolved, the name is not: a link keeps the name that people know
        return (path.parent.resolve() / path.name).relative_to(base).as_posix()
    return path.as_posix()


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which rank10.log stands behind rank9.log."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in regex.split(r"(\d{1,18})", name)]


def _add_folder(sources: Sources, folder: Path, base: Path) -> None:
    seen: set[str] = set()

    def failed(error: OSError) -> None:
        sources.note(_shown(Path(error.filename or folder), base), "this folder cannot be read; check its permissions")

    for place, folders, files in os.walk(folder, followlinks=True, onerror=failed):
        real = os.path.realpath(place)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if f not in {".git", "__pycache__", "node_modules"})
        for file in sorted(files):
            path = Path(place) / file
            _add_file(sources, path, _shown(path, base))


def _add_file(sources: Sources, path: Path, name: str) -> None:
    try:
        if not path.is_file():
            if path.is_symlink() and not path.exists():
                sources.note(name, "a link that leads nowhere; skipped")
            elif path.exists():
                sources.note(name, "not a regular file; skipped")
            return
        status = path.stat()
        with path.open("rb") as file:
            head = file.read(_SNIFF_BYTES)
    except OSError as error:
        sources.note(name, f"cannot be read ({error.strerror or error}); check its permissions")
        return
    _add_bytes(sources, path, name, head, status.st_size, int(status.st_mtime * SECOND), 0)


def _add_stdin(sources: Sources) -> None:
    path = sources.spool_path()
    with path.open("wb") as target:
        shutil.copyfileobj(sys.stdin.buffer, target, _COPY_BYTES)
    with path.open("rb") as file:
        head = file.read(_SNIFF_BYTES)
    _add_bytes(sources, path, "stdin", head, path.stat().st_size, int(time.time() * SECOND), 0)


def _add_bytes(sources: Sources, path: Path, name: str, head: bytes, size: int, mtime_us: int, depth: int) -> None:
    """Decide what a file is by its first bytes (its name only breaks ties) and add it, or what is in it."""
    if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")):
        _add_compressed(sources, path, name, head, mtime_us, depth)
    elif head.startswith(b"PK\x03\x04"):
        _add_zip(sources, path, name, depth)
    elif head[257:262] == b"ustar":
        with path.open("rb") as file:
            _add_tar(sources, file, name, depth)
    elif head.startswith((b"\xff\xfe", b"\xfe\xff")):
        _add_utf16(sources, path, name, mtime_us)
    else:
        _add_plain(sources, path, name, head, size, mtime_us)


def _add_plain(sources: Sources, path: Path, name: str, head: bytes, size: int, mtime_us: int) -> None:
    hints = hints_of(name)
    last = name.rpartition("/")[2].rpartition("!")[2].lower()
    kind = "log"
    if _PICKLE.match(head):
        kind = "flight_recorder" if "trace_rank" in last or "nccl_trace" in last else "binary"
    elif head.startswith(_MAGIC_BINARY) or head.count(b"\0") > len(head) // 20 + 1:
        kind = "binary"
    elif last.endswith(".json"):
        kind = "error_file" if last == "error.json" or _looks_like_error_file(head) else "config"
    elif last.endswith(_TEXT_BUT_NO_LOG):
        kind = "config"
    if kind == "binary":
        sources.note(name, "a binary file, not a log; skipped")
        return
    if size == 0 and kind != "log":
        return
    sources.found.append(Source(name, path, size, mtime_us, kind, hints))


def _looks_like_error_file(head: bytes) -> bool:
    return head.lstrip().startswith(b'{"message"') and b"py_callstack" in head


def _opened(path: Path, head: bytes) -> Any:
    """Return a decompressing binary stream for a file that begins with ``head``."""
    if head.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")
    if head.startswith(b"BZh"):
        return bz2.open(path, "rb")
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(path, "rb")
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    return io.BufferedReader(decompressor.stream_reader(path.open("rb"), read_across_frames=True, closefd=True))


def _add_compressed(sources: Sources, path: Path, name: str, head: bytes, mtime_us: int, depth: int) -> None:
    target = sources.spool_path()
    packed = path.stat().st_size
    try:
        with _opened(path, head) as stream:
            _spool(sources, stream, target, name, packed)
    except Exception as error:  # each codec raises its own classes for damaged data
        if isinstance(error, MemoryError):
            raise
        if not target.stat().st_size:
            sources.note(name, f"damaged archive ({error}); nothing could be unpacked")
            return
        sources.note(name, f"the archive is cut off or damaged ({error}); read up to there")
    inner = regex.sub(r"\.(?:gz|zst|bz2|xz)$", "", name)
    inner = regex.sub(r"\.tgz$", ".tar", inner)
    with target.open("rb") as file:
        start = file.read(_SNIFF_BYTES)
        if start[257:262] == b"ustar":
            file.seek(0)
            _add_tar(sources, file, name, depth)
            return
    _add_bytes(sources, target, inner, start, target.stat().st_size, mtime_us, depth + 1)


def _spool(sources: Sources, stream: IO[bytes], target: Path, name: str, packed: int) -> None:
    """Copy a decompressing stream to ``target``; stop at what can only be a decompression bomb."""
    written = 0
    with target.open("wb") as file:
        while block := stream.read(_COPY_BYTES):
            file.write(block)
            written += len(block)
            if written > MOST_UNPACKED and written > packed * MOST_RATIO:
                sources.note(name, f"unpacks to more than {written >> 30} GiB from {packed} bytes; read up to there")
                return


def _member_name(archive: str, member: str) -> str:
    parts = [part for part in member.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    return f"{archive}!{'/'.join(parts)}"


def _add_member(sources: Sources, stream: IO[bytes], name: str, packed: int, mtime_us: int, depth: int) -> None:
    target = sources.spool_path()
    try:
        _spool(sources, stream, target, name, packed)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        sources.note(name, f"cut off inside the archive ({error}); read up to there")
    with target.open("rb") as file:
        head = file.read(_SNIFF_BYTES)
    if depth >= _DEEPEST_ARCHIVE:
        sources.note(name, "an archive in an archive in an archive; skipped")
        return
    _add_bytes(sources, target, name, head, target.stat().st_size, mtime_us, depth + 1)


def _add_tar(sources: Sources, file: IO[bytes], name: str, depth: int) -> None:
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                shown = _member_name(name, member.name)
                if ".." in member.name.split("/") or member.name.startswith("/"):
                    sources.note(shown, f"its name leads out of the archive ({member.name}); read under this name")
                stream = archive.extractfile(member)
                if stream is not None:
                    _add_member(sources, stream, shown, max(member.size, 1), int(member.mtime * SECOND), depth)
    except (tarfile.TarError, OSError, EOFError) as error:
        sources.note(name, f"the archive is cut off or damaged ({error}); read up to there")


def _add_zip(sources: Sources, path: Path, name: str, depth: int) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.is_dir():
                    continue
                shown = _member_name(name, member.filename)
                if ".." in member.filename.split("/"):
                    sources.note(shown, f"its name leads out of the archive ({member.filename}); read under this name")
                try:
                    stamp = int(time.mktime((*member.date_time, 0, 0, -1))) * SECOND
                except (ValueError, OverflowError):
                    stamp = int(path.stat().st_mtime * SECOND)
                try:
                    with archive.open(member) as stream:
                        _add_member(sources, stream, shown, max(member.compress_size, 1), stamp, depth)
                except (RuntimeError, NotImplementedError) as error:  # encrypted, or an unknown method
                    sources.note(shown, f"cannot be unpacked ({error}); skipped")
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        sources.note(name, f"damaged archive ({error}); skipped")


def _add_utf16(sources: Sources, path: Path, name: str, mtime_us: int) -> None:
    """Windows redirection writes UTF-16; the scanner reads bytes, so it is turned into UTF-8."""
    target = sources.spool_path()
    with path.open("r", encoding="utf-16", errors="replace", newline="") as text, target.open("wb") as file:
        while block := text.read(_COPY_BYTES):
            file.write(block.encode())
    sources.found.append(Source(name, target, target.stat().st_size, mtime_us, "log", hints_of(name)))
