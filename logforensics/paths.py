"""Which files the paths of a user mean: every file under a folder once, what a pattern matches, no way in circles."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import regex

_SKIPPED_FOLDERS = {".git", "__pycache__", "node_modules", "site-packages"}
_MOST_SHOWN = 200


class InputError(ValueError):
    """The paths given cannot be used at all. The text is one line: what, where, what to do."""


def printable(text: str) -> str:
    """Return text that no terminal takes for a command: what cannot be printed is spelled out."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in text)


def _spelled(letter: str) -> str:
    number = ord(letter)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is no UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class Files:
    """The files that paths mean: iterate for (path, name that people see, whether it was named itself).

    ``note`` is told of what cannot be searched. ``standard_input`` says whether "-" is among the paths.
    """

    def __init__(self, paths: Iterable[str | Path], note: Callable[[str, str], None]) -> None:
        """Expand the patterns. Raises InputError for a path that does not exist."""
        given = list(dict.fromkeys(root for path in paths for root in _expand(str(path))))
        if not given:
            raise InputError("no path given; name a log file, a folder or '-'")
        self.standard_input = "-" in given
        self.where = printable(", ".join(given))
        self._roots = [Path(root) for root in given if root != "-"]
        self._base = _common_folder(self._roots)
        self._note = note

    def __iter__(self) -> Iterator[tuple[Path, str, bool]]:
        files: list[tuple[Path, bool]] = []
        for root in self._roots:
            if root.is_dir():
                files += [(path, False) for path in self._walk(root)]
            else:
                files.append((root, True))
        seen: set[tuple[int, int]] = set()
        # links last: where one leads to a file that is here anyway, the file's own name is kept
        for path, explicit in sorted(files, key=lambda item: item[0].is_symlink()):
            with contextlib.suppress(OSError):  # what is wrong with it is said when it is opened
                status = path.stat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            yield path, self._shown(path), explicit

    def _walk(self, folder: Path) -> Iterator[Path]:
        known = [os.path.realpath(root) for root in self._roots]

        def failed(error: OSError) -> None:
            self._note(self._shown(Path(error.filename or folder)), "this folder cannot be read; check its permissions")

        for place, folders, files in os.walk(folder, onerror=failed):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
            for name in folders:
                # links to folders are not followed: one may lead in a circle, or to a disk full of data
                link = Path(place) / name
                if link.is_symlink() and not any(_is_inside(os.path.realpath(link), root) for root in known):
                    what = (
                        f"a link to a folder elsewhere, not followed; give {os.path.realpath(link)} too to have it read"
                    )
                    self._note(self._shown(link), printable(what))
            yield from (Path(place) / file for file in sorted(files))

    def _shown(self, path: Path) -> str:
        with contextlib.suppress(ValueError, OSError):
            # the parent is resolved, the name is not: a link keeps the name that people know
            return printable((path.parent.resolve() / path.name).relative_to(self._base).as_posix())
        return printable(path.as_posix())


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _expand(path: str) -> list[str]:
    try:
        if path == "-" or Path(path).exists():
            return [path]
        if glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - the pattern may be absolute
            if matches:
                return matches
            raise InputError(f"{printable(path)}: nothing matches this pattern; check the path")
        if Path(path).is_symlink():
            raise InputError(f"{printable(path)}: a link that leads nowhere; give the real path")
    except OSError as error:  # no permission on the way, or a text far too long for a path
        shown = printable(path if len(path) <= _MOST_SHOWN else path[:_MOST_SHOWN] + "...")
        raise InputError(f"{shown}: cannot be reached ({error.strerror or error}); check the path") from error
    raise InputError(f"{printable(path)}: no such file or folder; check the path")


def _common_folder(roots: list[Path]) -> Path:
    folders = [root.resolve() for root in roots]
    folders = [folder if folder.is_dir() else folder.parent for folder in folders]
    if not folders:
        return Path()
    try:
        return Path(os.path.commonpath(folders))
    except ValueError:  # different drives
        return Path()


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts rank10.log behind rank9.log."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in regex.split(r"([0-9]{1,18})", name)]
