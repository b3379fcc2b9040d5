"""The command line: options, one call into the library, an exit code. Heavy imports happen inside commands."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from logforensics import __version__
from logforensics.checking import cli_check
from logforensics.console import ParsersOption, check_outputs, fail, progress_bar, write_bytes, write_text
from logforensics.harness import cli_reproduce
from logforensics.paths import printable

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

# What is wrong with the arguments; typer shows only classes that derive from it.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]


class _Program(TyperGroup):
    """All commands. A reader of the output that goes away (``| head``) is no error; a full disk is one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except BrokenPipeError as error:
            # what is still buffered has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ended = error.__context__
            raise typer.Exit(ended.exit_code if isinstance(ended, typer.Exit) else 0) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")


app = typer.Typer(
    cls=_Program,
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
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Log files, folders, archives, globs, or - for standard input."),
]

LangOption = Annotated[
    str,
    typer.Option("--lang", metavar="LANG", help="The language of the reports: en or tr. Log lines stay as they are."),
]
RedactOption = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Replace secrets, users, hosts, addresses and e-mails by aliases, the same ones in every output.",
    ),
]


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
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write a summary for an issue or a chat (- for stdout)."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the analysis as JSON (- for stdout).")
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Write JUnit XML, one test case for the run (- for stdout)."),
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
        typer.Option(
            "--world-size", metavar="N", min=1, max=1_000_000, help="The number of ranks, where the logs do not say."
        ),
    ] = None,
    redact: RedactOption = False,
    lang: LangOption = "en",
) -> None:
    """Diagnose a failed run: which rank failed first, why, and what it did to the others."""
    from logforensics.language import LANGUAGES, speaking

    _require_one_of("--lang", lang, LANGUAGES)
    outputs = {"html": html, "markdown": markdown, "json": json_file, "junit": junit, "parquet": parquet}
    check_outputs(paths, **outputs)
    if parquet is not None:
        _refuse_terminal(parquet, "--parquet")
    with speaking(lang):
        result = _analyzed(paths, parsers=parsers, since=since, until=until, world_size=world_size, redact=redact)
        check_outputs(_read(result), **outputs)
        _report(result, outputs, real_paths=not redact)


def _require_one_of(option: str, word: str, allowed: Collection[str]) -> None:
    if word not in allowed:
        fail(f"{option} {word!r} is not one of {', '.join(allowed)}")


def _report(result: Analysis, outputs: dict[str, Path | None], *, real_paths: bool) -> None:
    """Write the reports that were asked for, and the verdict unless one of them has standard output."""
    quiet = False
    if (file := outputs["json"]) is not None:
        from logforensics.render.json_report import json_text

        quiet |= write_text(file, json_text(result))
    if (file := outputs["html"]) is not None:
        from logforensics.render.html import to_html

        quiet |= write_text(file, to_html(result))
    if (file := outputs["markdown"]) is not None:
        from logforensics.render.markdown import to_markdown

        quiet |= write_text(file, to_markdown(result))
    if (file := outputs["junit"]) is not None:
        from logforensics.render.junit import to_junit

        quiet |= write_text(file, to_junit(result))
    if (file := outputs["parquet"]) is not None:
        quiet |= _write_frame(result.timeline, file, "parquet")
    from logforensics.render.github import annotate, annotation_of, commands_stopped

    annotate([annotation_of(result, real_paths=real_paths)], quiet=quiet)
    if not quiet:
        from rich.console import Console

        from logforensics.render.terminal import print_verdict

        with commands_stopped():
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
    redact: RedactOption = False,
) -> None:
    """Print the events of all ranks in causal reading order."""
    from logforensics.model import KINDS, ROLES

    for given, allowed, name in ((kind, KINDS, "--kind"), (role, ROLES, "--role")):
        for word in given or []:
            _require_one_of(name, word, allowed)
    _require_one_of("--format", form, ("table", "csv", "json", "parquet"))
    check_outputs(paths, output=output)
    if form == "parquet":
        _refuse_terminal(output, "--output")
    result = _analyzed(paths, parsers=parsers, redact=redact)
    check_outputs(_read(result), output=output)
    from logforensics.selection import select_events
    from logforensics.sources import InputError

    try:
        events = select_events(result.events, ranks=rank, kinds=kind, roles=role, around=around, window_s=window)
    except InputError as error:
        fail(str(error))
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
        fail(f"{name}: no such signature; `logforensics parsers list` names them all")
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
    typer.echo(f"without prefixes: {printable(text)}")
    if peeled.fields:
        typer.echo(f"the prefixes say: {peeled.fields}")
    found = matching(_signatures(parsers).signatures, line)
    if all(match.signature.fallback for match in found):
        typer.echo("no signature claims this line")
    for match in found:
        where = "at the end of a traceback: " if match.signature.fallback else ""
        typer.echo(f"{where}{match.signature.name} ({match.signature.role}): {match.fields}")


@parsers_app.command("check")
def parsers_check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of dialect files (*.toml).")],
) -> None:
    """Check a folder of signatures: samples, fields, overlaps with the shipped ones. Exit status 1 on a problem."""
    from logforensics.signatures import SignatureError, signatures_with

    try:
        checked = signatures_with(folder)
    except SignatureError as error:
        fail(str(error))
    for problem in checked.problems:
        typer.echo(problem)
    if checked.problems:
        raise typer.Exit(1)
    typer.echo(f"{folder}: all signatures are good")


# In the order in which --help lists them.
cli_reproduce.register(app)
cli_check.register(app)
app.add_typer(parsers_app, name="parsers")


def _signatures(folder: Path | None) -> Any:
    from logforensics.signatures import SignatureError, signatures_with

    try:
        chosen = signatures_with(folder)
    except SignatureError as error:
        fail(str(error))
    for problem in chosen.problems:
        typer.echo(f"logforensics: {problem}", err=True)
    return chosen


def _analyzed(paths: list[str], **options: Any) -> Analysis:
    from logforensics.analysis import analyze as run
    from logforensics.signatures import SignatureError
    from logforensics.sources import InputError

    try:
        with progress_bar("reading logs") as advance:
            return run(paths, progress=advance, **options)
    except (InputError, SignatureError) as error:
        fail(str(error))


def _read(result: Analysis) -> list[Path]:
    """The files that were read as logs. What a run's folder holds besides, an older report perhaps, may be replaced."""
    return [source.path for source in result.sources if source.kind != "config"]


def _refuse_terminal(output: Path, option: str) -> None:
    if str(output) == "-" and sys.stdout.isatty():
        fail(f"{option} -: Parquet is binary; name a file")


def _write_frame(frame: Any, path: Path, form: str) -> bool:
    """Write events as csv, json (one object a line) or parquet; return whether they went to standard output."""
    buffer = io.BytesIO()
    {"parquet": frame.write_parquet, "csv": frame.write_csv, "json": frame.write_ndjson}[form](buffer)
    if form == "json":
        from logforensics.render.json_report import escaped

        return write_text(path, escaped(buffer.getvalue().decode()))
    if form == "csv" and str(path) == "-" and sys.stdout.isatty():
        return write_text(path, "\n".join(map(printable, buffer.getvalue().decode().split("\n"))))
    return write_bytes(path, buffer.getvalue())


def main() -> None:
    """Run the command line: the console script's entry."""
    # a call lives a second and makes few cycles: looking for them among all its objects is a tenth of that second
    gc.set_threshold(100_000, 50, 50)
    try:
        status = app(prog_name="logforensics", standalone_mode=False)
    except _UsageError as error:
        text = error.format_message()
        where = error.ctx.command_path if error.ctx else "logforensics"
        # without arguments the text is the whole help
        typer.echo(text if "\n" in text else f"{where}: {printable(text)} See `{where} --help`.", err=True)
        status = 2
    except typer.Abort:
        status = 130
    sys.exit(status)
