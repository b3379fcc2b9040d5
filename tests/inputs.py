"""Builds the inputs of the outer tests: one real run in every wrapping, archives, and the command line in-process."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from logforensics.cli import main
from logforensics.sources import Sources, collect

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
# One interleaved log of a real run: rank 1's data have another shape.
SHAPE = FIXTURES / "ddp-shape-combined-info-cpploginfo"
SHAPE_LOG = (SHAPE / "logs" / "train.log").read_bytes()
SHAPE_TRUTH = tomllib.loads((SHAPE / "truth.toml").read_text())

TEXT = b"".join(b"step %d loss %f\n" % (number, 1 / (number + 1)) for number in range(400))
# So large that cutting it leaves whole blocks of every codec.
LONG = b"".join(
    b"%d %s\n" % (number, bytes((number * number + place) % 64 + 32 for place in range(60))) for number in range(9000)
)

COMPRESS = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def contents(*paths: str | Path) -> dict[str, bytes]:
    """What each source holds, under the name that people see."""
    with collect(paths) as sources:
        return {source.name: source.path.read_bytes() for source in sources.found}


def notes(sources: Sources) -> list[str]:
    return [f"{note.source}: {note.what}" for note in sources.notes]


def tar(files: Mapping[str, bytes], *, mtime: float = 1_790_000_000) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), int(mtime)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 9, 21, 12, 0, 0)), content, method)
    return target.getvalue()


def encrypted(archive: bytes) -> bytes:
    """Return a zip archive whose members all say that they are encrypted."""
    changed = bytearray(archive)
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = archive.find(magic)
        while at >= 0:
            changed[at + place] |= 1
            at = archive.find(magic, at + 1)
    return bytes(changed)


@dataclass(frozen=True)
class Ran:
    """What a call of the program gave."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON document on standard output."""
        assert self.status == 0, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document


class Program:
    """Calls the command line inside this process, with its output captured as for a pipe."""

    def __init__(self, monkeypatch: Any, capfd: Any) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *arguments: object, stdin: bytes | None = None) -> Ran:
        self._monkeypatch.setattr(sys, "argv", ["logforensics", *map(str, arguments)])
        if stdin is not None:
            self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capfd.readouterr()
        status: Any = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        out, err = self._capfd.readouterr()
        return Ran(status or 0, out, err)


def read_terminal(ours: int) -> bytes:
    """What was written to a pseudo-terminal, until its other side is closed; closes this side."""
    shown = b""
    try:
        while block := os.read(ours, 1 << 16):
            shown += block
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(ours)
    return shown
