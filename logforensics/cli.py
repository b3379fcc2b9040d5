"""The command line: options, one call into the library, an exit code. Heavy imports happen inside commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from logforensics import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logforensics.analysis import Analysis

app = typer.Typer(
    name="logforensics",
    help="My multi-GPU training run died: which rank failed first, and why?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
parsers_app = typer.Typer(
    help="The signatures: list them, show one, try a line, check a folder of your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(parsers_app, name="parsers")

# A progress bar for less than this only flickers.
_BAR_AFTER_SECONDS = 1.0

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Log files, folders, archives, globs, or - for standard input."),
]
ParsersOption = Annotated[
    Path | None,
    typer.Option("--parsers", metavar="DIR", help="A folder of your own signatures, used beside the shipped ones."),
]


def _fail(message: str) -> NoReturn:
    """One line on standard error, exit status 2: the arguments or the input cannot be used."""
    typer.echo(f"logforensics: {message}", err=True)
    raise typer.Exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"logforensics {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def analyze(
    paths: Paths,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report (- for stdout).")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the analysis as JSON (- for stdout).")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write the timeline as Parquet.")
    ] = None,
    parsers: ParsersOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help='Leave out what came before, e.g. "2026-11-30 19:11:05".'),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Leave out what came after.")] = None,
    world_size: Annotated[
        int | None,
        typer.Option("--world-size", metavar="N", min=1, help="The number of ranks, where the logs do not say."),
    ] = None,
) -> None:
    """Diagnose a failed run: which rank failed first, why, and what it did to the others."""
    result = _analyzed(paths, parsers=parsers, since=since, until=until, world_size=world_size)
    quiet = False
    if json_file is not None:
        import json

        from logforensics.render.json_report import to_json

        quiet |= _write(json_file, json.dumps(to_json(result), indent=1, ensure_ascii=False) + "\n")
    if html is not None:
        from logforensics.render.html import to_html

        quiet |= _write(html, to_html(result))
    if parquet is not None:
        _write_frame(result.timeline, parquet, "parquet")
    if not quiet:
        from rich.console import Console

        from logforensics.render.terminal import print_verdict

        print_verdict(result, Console(soft_wrap=False))


@app.command()
def timeline(
    paths: Paths,
    rank: Annotated[
        list[int] | None, typer.Option("--rank", metavar="N", help="Only these ranks (repeatable).")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only these kinds (repeatable).")
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="Only these roles (repeatable).")
    ] = None,
    around: Annotated[str | None, typer.Option("--around", metavar="TIME", help="Only events near this time.")] = None,
    window: Annotated[
        float, typer.Option("--window", metavar="SECONDS", min=0, help="What --around calls near.")
    ] = 60.0,
    form: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="table, csv, json (one object a line) or parquet."),
    ] = "table",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write (- for stdout).")
    ] = Path("-"),
    parsers: ParsersOption = None,
) -> None:
    """Print the events of all ranks in causal reading order."""
    from logforensics.model import KINDS, ROLES

    for given, allowed, name in ((kind, KINDS, "--kind"), (role, ROLES, "--role")):
        for word in given or []:
            if word not in allowed:
                _fail(f"{name} {word!r} is not one of {', '.join(allowed)}")
    if form not in {"table", "csv", "json", "parquet"}:
        _fail(f"--format {form!r} is not one of table, csv, json, parquet")
    if form == "parquet" and str(output) == "-" and sys.stdout.isatty():
        _fail("Parquet is binary; name a file with --output")
    result = _analyzed(paths, parsers=parsers)
    from logforensics.selection import select_events
    from logforensics.sources import InputError

    try:
        events = select_events(result.events, ranks=rank, kinds=kind, roles=role, around=around, window_s=window)
    except InputError as error:
        _fail(str(error))
    if form == "table" and str(output) == "-":
        from rich.console import Console

        from logforensics.render.terminal import print_timeline

        print_timeline(events, Console(soft_wrap=False))
        return
    from logforensics.timeline import to_frame

    _write_frame(to_frame(events), output, "csv" if form == "table" else form)


@parsers_app.command("list")
def parsers_list(parsers: ParsersOption = None) -> None:
    """List every signature: name, role, category, and what it says."""
    for signature in _signatures(parsers).signatures:
        typer.echo(f"{signature.name:48} {signature.role:9} {signature.category or '-':22} {signature.says}")


@parsers_app.command("show")
def parsers_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A signature, e.g. pg_nccl/watchdog-timeout.")],
    parsers: ParsersOption = None,
) -> None:
    """Show one signature: pattern, samples, where its shape comes from."""
    signature = next((s for s in _signatures(parsers).signatures if s.name == name), None)
    if signature is None:
        _fail(f"{name}: no such signature; `logforensics parsers list` names them all")
    typer.echo(f"{signature.name}: rank 3 {signature.says}")
    for key in ("kind", "role", "category", "phase", "activity", "scope", "reference"):
        if value := getattr(signature, key):
            typer.echo(f"  {key}: {value}")
    typer.echo(f"  seen in: {', '.join(signature.seen_in)}")
    typer.echo(f"  pattern: {signature.regex}")
    for sample in signature.samples:
        typer.echo(f"  sample: {sample.line}")
        typer.echo(f"    gives {sample.fields}")
    for line, why in signature.nots:
        typer.echo(f"  not: {line}\n    because {why}")


@parsers_app.command("try")
def parsers_try(
    line: Annotated[str, typer.Argument(metavar="LINE", help="A log line, as the log has it.")],
    parsers: ParsersOption = None,
) -> None:
    """Say which signature claims a line and what it extracts."""
    from logforensics.signatures import matching, peel_record

    text, peeled = peel_record(line)
    typer.echo(f"without prefixes: {text}")
    if peeled.fields:
        typer.echo(f"the prefixes say: {peeled.fields}")
    found = matching(_signatures(parsers).signatures, line)
    if not found:
        typer.echo("no signature claims this line")
        raise typer.Exit
    for match in found:
        typer.echo(f"{match.signature.name} ({match.signature.role}): {match.fields}")


@parsers_app.command("check")
def parsers_check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of dialect files (*.toml).")],
) -> None:
    """Check a folder of signatures: samples, fields, overlaps with the shipped ones. Exit status 1 on a problem."""
    from logforensics.signatures import SignatureError, signatures_with

    try:
        checked = signatures_with(folder)
    except SignatureError as error:
        _fail(str(error))
    for problem in checked.problems:
        typer.echo(problem)
    if checked.problems:
        raise typer.Exit(1)
    typer.echo(f"{folder}: all signatures are good")


def _signatures(folder: Path | None) -> Any:
    from logforensics.signatures import SignatureError, signatures_with

    try:
        chosen = signatures_with(folder)
    except SignatureError as error:
        _fail(str(error))
    for problem in chosen.problems:
        typer.echo(f"logforensics: {problem}", err=True)
    return chosen


def _analyzed(paths: list[str], **options: Any) -> Analysis:
    from logforensics.analysis import analyze as run
    from logforensics.signatures import SignatureError
    from logforensics.sources import InputError

    try:
        with _progress_bar() as advance:
            return run(paths, progress=advance, **options)
    except (InputError, SignatureError) as error:
        _fail(str(error))


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on standard error once the scan takes longer than a second; only on a terminal."""
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
            shown.extend((bar, bar.add_task("reading logs", total=total)))
        if shown:
            shown[0].update(shown[1], completed=done)

    try:
        yield advance
    finally:
        if shown:
            shown[0].stop()


def _write(path: Path, text: str) -> bool:
    """Write a text file; return whether it went to standard output (then nothing else may)."""
    if str(path) == "-":
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
        return True
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _fail(f"{path}: cannot be written ({error.strerror or error})")
    return False


def _write_frame(frame: Any, path: Path, form: str) -> None:
    target: Any = sys.stdout.buffer if str(path) == "-" else path
    try:
        if form == "parquet":
            frame.write_parquet(target)
        elif form == "csv":
            frame.write_csv(target)
        else:
            frame.write_ndjson(target)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        _fail(f"{path}: cannot be written ({error.strerror or error})")


def main() -> None:
    """Run the command line; a reader that goes away (``| head``) is no error."""
    try:
        app()
    except BrokenPipeError:
        # what is still buffered has nowhere to go
        sys.stderr.close()
        raise SystemExit(0) from None
