"""What every command does the same way: fail in one line, write to a file or to standard output, show a bar."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from logforensics.paths import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

# A progress bar for less than this only flickers.
_BAR_AFTER_SECONDS = 1.0

ParsersOption = Annotated[
    Path | None,
    typer.Option("--parsers", metavar="DIR", help="A folder of your own signatures, used beside the shipped ones."),
]


def fail(message: str) -> NoReturn:
    """One line on standard error, exit status 2: the arguments or the input cannot be used."""
    typer.echo(f"logforensics: {printable(message)}", err=True)
    raise typer.Exit(2)


def check_outputs(inputs: Iterable[str | Path], **outputs: Path | None) -> None:
    """Fail before the work starts when its results could not be written; ``outputs`` maps options to files."""
    named = {"--" + option.replace("_", "-"): path for option, path in outputs.items() if path is not None}
    if sum(str(path) == "-" for path in named.values()) > 1:
        *first, last = named
        fail(f"only one of {', '.join(first)} and {last} can go to standard output; name files for the others")
    taken = {os.path.realpath(path) for path in inputs}
    for option, path in named.items():
        if str(path) == "-":
            continue
        if os.path.realpath(path) in taken:
            fail(f"{option} {path}: this is a file to read; name another one")
        if path.is_dir():
            fail(f"{option} {path}: this is a folder; name a file")
        if not path.parent.is_dir():
            fail(f"{option} {path}: there is no folder {path.parent}; make it first")


def write_text(path: Path, text: str) -> bool:
    """Write a text file; return whether it went to standard output (then nothing else may)."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> bool:
    """Write a file; return whether it went to standard output (then nothing else may)."""
    if str(path) == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return True
    try:
        path.write_bytes(content)
    except OSError as error:
        fail(f"{path}: cannot be written ({error.strerror or error})")
    return False


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a callback for (done, in all) that shows a bar on standard error; None where that is no terminal.

    The bar, called ``doing``, appears once the work takes longer than a second.
    """
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    shown: list[Any] = []

    def advance(done: int, total: int) -> None:
        if not shown and time.monotonic() - started > _BAR_AFTER_SECONDS:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            shown.extend((bar, bar.add_task(doing, total=total)))
        if shown:
            shown[0].update(shown[1], completed=done)

    try:
        yield advance
    finally:
        if shown:
            shown[0].stop()
