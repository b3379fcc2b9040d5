"""Opens what is compressed or packed: gzip, bzip2, xz, zstandard, tar and zip.

Damage raises nothing here: a stream gives everything up to the damage, ends there, and says in ``trouble`` what
was wrong. Everything that comes out of one file shares one limit, so that no nesting makes a decompression
bomb.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from logforensics.clock import SECOND
from logforensics.language import _

# A file that unpacks to more than this AND by more than the ratio is a decompression bomb, not a log.
MOST_UNPACKED = 1 << 30
MOST_RATIO = 400

_READ_BYTES = 1 << 20
# How much is unpacked at a time: of a damaged xz step nothing is left, and zstandard gives all that a step holds at
# once, which a bomb makes thirty thousand times as much.
_STEP_BYTES = {"gzip": 32 << 10, "bzip2": 32 << 10, "xz": 4 << 10, "zstandard": 4 << 10}
_PIECE_BYTES = 64 << 10
_MOST_XZ_MEMORY = 512 << 20

_CODECS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
_LOCAL_HEADER = struct.Struct("<4s2xHHHH4xLLHH")
_LOCAL_MAGIC = b"PK\x03\x04"
_MOST_DESCRIPTOR = 24
_TAR_ENDS = (tarfile.EOFHeaderError, tarfile.EmptyHeaderError)  # type: ignore[attr-defined]
# A file's time beyond this (the year 2100) is no time.
_LATEST_SECOND = 4_102_444_800


class DamageError(Exception):
    """A stream cannot be read any further; the text says why."""


class Limit:
    """How much may come out of one file of ``packed`` bytes, however deeply it is packed."""

    def __init__(self, packed: int) -> None:
        self._most = max(MOST_UNPACKED, packed * MOST_RATIO)
        self._so_far = 0

    def count(self, size: int) -> None:
        """Add what was unpacked. Raises DamageError when that is too much."""
        self._so_far += size
        if self._so_far > self._most:
            raise DamageError(
                _("it unpacks to more than {most} bytes, as a decompression bomb does").format(most=f"{self._most:,}")
            )


class Stream:
    """Bytes that can be looked at before they are taken. ``trouble`` says why it ended early, if it did."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._block, self._place = b"", 0  # what is before the place has been taken
        self.trouble: str | None = None

    def _more(self) -> bytes:
        try:
            for block in self._blocks:
                if block:
                    return block
        except DamageError as damage:
            self.trouble = str(damage)
        except OSError as error:
            self.trouble = _("it cannot be read any further ({reason})").format(reason=error.strerror or error)
        self._blocks = iter(())
        return b""

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer at the end, and leave them there."""
        while len(self._block) - self._place < size and (more := self._more()):
            self._block, self._place = self._block[self._place :] + more, 0
        return self._block[self._place : self._place + size]

    def read(self, size: int = _READ_BYTES) -> bytes:
        """Take up to ``size`` bytes; none at the end only."""
        if self._place == len(self._block):
            self._block, self._place = self._more(), 0
        taken = self._block[self._place : self._place + size]
        self._place += len(taken)
        return taken

    def give_back(self, count: int) -> None:
        """Put back the last ``count`` bytes of what ``read`` returned last."""
        self._place -= count


@dataclass(slots=True)
class Member:
    """One file of an archive. ``stream`` is None for one that cannot be unpacked; ``trouble`` says why."""

    name: str
    mtime_us: int
    stream: Stream | None
    trouble: str | None = None


def microseconds(seconds: float) -> int:
    """Return a file's time in microseconds since 1970; 0 for one that cannot be."""
    return int(seconds * SECOND) if 0 < seconds < _LATEST_SECOND else 0


def file_stream(path: Path) -> Stream:
    """Return a file's bytes as they are."""

    def blocks() -> Iterator[bytes]:
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                yield block

    return Stream(blocks())


def packing_of(head: bytes) -> str | None:
    """Return how a file that begins with ``head`` (512 bytes or more) is packed; None when it is not."""
    if head[257:262] == b"ustar":
        return "tar"
    if head.startswith(_LOCAL_MAGIC):
        return "zip"
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)


# -- one compressed stream ------------------------------------------------------------------------------------


def decompressed(stream: Stream, limit: Limit) -> Stream:
    """Return what a compressed stream holds; streams that were put one behind another are one."""
    head = stream.peek(8)
    for magic, codec in _CODECS.items():
        if head.startswith(magic):
            return Stream(_decompress(stream, codec, magic, limit))
    raise ValueError("the stream is not compressed")


def _machine(codec: str) -> Any:
    if codec == "gzip":
        return zlib.decompressobj(wbits=31)
    if codec == "bzip2":
        return bz2.BZ2Decompressor()
    if codec == "xz":
        return lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _decompress(stream: Stream, codec: str, magic: bytes, limit: Limit) -> Iterator[bytes]:
    machine = _machine(codec)
    while block := stream.read(_STEP_BYTES[codec]):
        try:
            for piece in _pieces(machine, block, codec):
                limit.count(len(piece))
                yield piece
        except DamageError:
            raise
        except MemoryError as error:
            raise DamageError(_("unpacking it takes too much memory ({codec})").format(codec=codec)) from error
        except Exception as error:  # each codec has its own classes for damaged data
            raise DamageError(_("the {codec} data are damaged ({reason})").format(codec=codec, reason=error)) from error
        if not machine.eof:
            continue
        stream.give_back(len(machine.unused_data))
        if not stream.peek(len(magic)).strip(b"\0"):  # nothing, or what a tape is padded with
            return
        if stream.peek(len(magic)) != magic:
            raise DamageError(_("something else stands behind the end of the {codec} data").format(codec=codec))
        machine = _machine(codec)
    if codec == "gzip":
        yield machine.flush()
    cut = _("the {codec} data are cut off").format(codec=codec)
    raise DamageError(f"{cut}: {stream.trouble}" if stream.trouble else cut)


def _pieces(machine: Any, block: bytes, codec: str) -> Iterator[bytes]:
    """Unpack one block in pieces of bounded size."""
    if codec == "zstandard":  # knows no bound; the small steps have to do
        yield machine.decompress(block)
    elif codec == "gzip":
        while True:
            before = machine.copy()
            try:
                piece = machine.decompress(block, _PIECE_BYTES)
            except zlib.error:
                yield from _up_to_damage(before, block)
                raise
            yield piece
            block = machine.unconsumed_tail
            if machine.eof or not block:
                return
    else:
        yield machine.decompress(block, _PIECE_BYTES)
        while not machine.needs_input and not machine.eof:
            yield machine.decompress(b"", _PIECE_BYTES)


def _up_to_damage(machine: Any, block: bytes) -> Iterator[bytes]:
    """Unpack a block in the smallest steps, to have what stands before the byte that is wrong."""
    for place in range(len(block)):
        try:
            yield machine.decompress(block[place : place + 1])
        except zlib.error:
            return


# -- tar ------------------------------------------------------------------------------------------------------


def tar_members(stream: Stream, say: Callable[[str], None]) -> Iterator[Member]:
    """Yield the regular files of a tar archive; ``say`` is told when it is cut off or damaged.

    A member's stream must be read before the next member is asked for. Links and devices are left out.
    """
    damage: list[str] = []

    class Header(tarfile.TarInfo):
        """Keeps what tarfile swallows: a damaged header in mid-archive ends the iteration without a word."""

        @classmethod
        def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
            try:
                return super().fromtarfile(archive)
            except tarfile.HeaderError as error:
                if not isinstance(error, _TAR_ENDS):
                    damage.append(str(error))
                raise

    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header) as archive:  # type: ignore[call-overload]
            for member in archive:
                if member.isfile():
                    yield Member(member.name, microseconds(member.mtime), Stream(_tar_blocks(archive, member)))
    except Exception as error:  # tarfile lets many an exception of its own parsing through
        damage.append(str(error))
    if damage:
        say(_("the tar archive is cut off or damaged ({reason}); read up to there").format(reason=damage[0]))


def _tar_blocks(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    if member.issparse():
        try:
            file = archive.extractfile(member)
            while file is not None and (block := file.read(_PIECE_BYTES)):
                yield block
        except (tarfile.TarError, EOFError) as error:
            raise DamageError(_("the archive ends inside it ({reason})").format(reason=error)) from error
        return
    # tarfile's own reader drops what a last, short read gave
    raw, left = archive.fileobj, member.size
    assert raw is not None
    raw.seek(member.offset_data)
    while left and (block := raw.read(min(left, _PIECE_BYTES))):
        left -= len(block)
        yield block
    if left:
        raise DamageError(_("the archive ends inside it"))


# -- zip ------------------------------------------------------------------------------------------------------


def zip_members(path: Path, limit: Limit, say: Callable[[str], None]) -> Iterator[Member]:
    """Yield the files of a zip archive; ``say`` is told when its table of contents is lost.

    A member's stream must be read before the next member is asked for.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        say(_("the zip archive is cut off or damaged ({reason}); read what could be found in it").format(reason=error))
        yield from _salvaged(path, limit)
        return
    with archive:
        for info in archive.infolist():
            if info.is_dir() or (info.external_attr >> 16) & 0o170000 == 0o120000:
                continue
            if info.flag_bits & 1:
                yield Member(info.filename, 0, None, _("encrypted; unpack it and give what was in it"))
                continue
            yield Member(info.filename, _dos_time(info.date_time), Stream(_zip_blocks(archive, info, limit)))


def _zip_blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: Limit) -> Iterator[bytes]:
    try:
        with archive.open(info) as file:
            while block := file.read1(_PIECE_BYTES):  # type: ignore[attr-defined]
                limit.count(len(block))
                yield block
    except NotImplementedError as error:
        raise DamageError(_("packed in a way that is not supported ({reason})").format(reason=error)) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, lzma.LZMAError) as error:
        raise DamageError(_("its data are damaged ({reason})").format(reason=error)) from error


def _dos_time(stamp: tuple[int, int, int, int, int, int]) -> int:
    """Return microseconds since 1970 of a zip's local time; 0 for an impossible one."""
    try:
        return microseconds(time.mktime((*stamp, 0, 0, -1)))
    except (ValueError, OverflowError):
        return 0


def _salvaged(path: Path, limit: Limit) -> Iterator[Member]:
    """Yield the members of a zip archive without its table of contents, which stands at the end.

    Each member has a header of its own, and deflated data say themselves where they end.
    """
    with path.open("rb") as file:
        while True:
            header = file.read(_LOCAL_HEADER.size)
            if len(header) < _LOCAL_HEADER.size:
                return
            magic, flags, method, clock, day, packed, _size, length, extra = _LOCAL_HEADER.unpack(header)
            if magic != _LOCAL_MAGIC:
                return
            name = file.read(length).decode("utf-8" if flags & 0x800 else "cp437", "replace")
            file.seek(extra, 1)
            stamp = (1980 + (day >> 9), day >> 5 & 15, day & 31, clock >> 11, clock >> 5 & 63, (clock & 31) * 2)
            if flags & 1:
                yield Member(name, 0, None, _("encrypted; unpack it and give what was in it"))
                file.seek(packed, 1)
            elif method == zipfile.ZIP_DEFLATED:
                stream = Stream(_inflate(file, limit))
                yield Member(name, _dos_time(stamp), stream)
                while stream.read():
                    pass
            elif method == zipfile.ZIP_STORED and not flags & 8:
                start = file.tell()
                yield Member(name, _dos_time(stamp), Stream(_stored(file, packed)))
                file.seek(start + packed)
            else:
                yield Member(name, 0, None, _("cannot be unpacked without the archive's table of contents"))
                file.seek(packed, 1)
            place = file.tell()
            skipped = file.read(_MOST_DESCRIPTOR + len(_LOCAL_MAGIC)).find(_LOCAL_MAGIC)
            if skipped < 0:
                return
            file.seek(place + skipped)


def _inflate(file: Any, limit: Limit) -> Iterator[bytes]:
    machine = zlib.decompressobj(wbits=-15)
    while block := file.read(_STEP_BYTES["gzip"]):
        try:
            for piece in _pieces(machine, block, "gzip"):
                limit.count(len(piece))
                yield piece
        except zlib.error as error:
            raise DamageError(_("its data are damaged ({reason})").format(reason=error)) from error
        if machine.eof:
            file.seek(-len(machine.unused_data), 1)
            return
    yield machine.flush()
    raise DamageError(_("the archive ends inside it"))


def _stored(file: Any, size: int) -> Iterator[bytes]:
    while size and (block := file.read(min(size, _PIECE_BYTES))):
        size -= len(block)
        yield block
    if size:
        raise DamageError(_("the archive ends inside it"))
