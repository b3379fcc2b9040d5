"""Compiles the expressions that are data, and remembers them compiled from one call of the program to the next.

There are about a thousand of them, a run needs a hundred, and compiling those costs more than searching a
gigabyte with them. So each is compiled when it is first needed, and what was needed is kept on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import regex

_FLAGS = regex.VERBOSE | regex.ASCII
# More than all shipped ones; beyond it a user's folder that changes daily would only grow the file.
_MOST_KEPT = 5000

_ready: dict[str, Any] = {}
_stored: dict[str, bytes] = {}
_new: set[str] = set()


def compiled(pattern: str) -> Any:
    """Return a verbose, ASCII ``regex`` pattern. Raises regex.error when it cannot be compiled."""
    ready = _ready.get(pattern)
    if ready is None:
        stored = _stored.get(pattern)
        if stored is not None:
            with contextlib.suppress(Exception):  # a pickle of another build may raise anything; compiling still works
                ready = pickle.loads(stored)
        if ready is None:
            ready = regex.compile(pattern, _FLAGS)
            _new.add(pattern)
        _ready[pattern] = ready
    return ready


def remember_from(cache: Path) -> None:
    """Take over what earlier calls left in ``cache`` (a folder); nothing there, or damaged, is no failure."""
    if _stored:
        return
    with contextlib.suppress(Exception):
        body = read_checked(_file(cache))
        if body is not None:
            _stored.update(pickle.loads(body))


def remember_in(cache: Path) -> None:
    """Leave what was compiled since in ``cache``; a folder that cannot be written is no failure."""
    if not _new or len(_stored) + len(_new) > _MOST_KEPT:
        return
    _stored.update((pattern, pickle.dumps(_ready[pattern])) for pattern in sorted(_new))
    _new.clear()
    write_checked(_file(cache), pickle.dumps(_stored))


def _file(cache: Path) -> Path:
    # the stored form is the library's own code, good for this version of it only
    return cache / f"patterns-{regex.__version__}-{sys.implementation.cache_tag}-{sys.byteorder}.bin"


def is_own(path: Path) -> bool:
    """Return whether nobody but this user can have written a cache file: what it holds is trusted as code is."""
    status = path.stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def read_checked(path: Path) -> bytes | None:
    """Return what ``write_checked`` wrote; None when it is damaged or not this user's. Raises OSError."""
    if not is_own(path):
        return None
    content = path.read_bytes()
    digest, body = content[:32], content[32:]
    return body if hashlib.sha256(body).digest() == digest else None


def write_checked(path: Path, body: bytes) -> None:
    """Write a cache file whose damage is noticed when it is read; an unwritable folder is no failure."""
    write_atomically(path, hashlib.sha256(body).digest() + body)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a cache file so that no reader sees half of it; a folder that cannot be written is no failure."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
