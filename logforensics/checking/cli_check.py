"""The ``check`` command: fixtures in, differences from their truth and a score out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logforensics.console import ParsersOption, fail, progress_bar, write_text


def check(
    fixtures: Annotated[
        list[Path],
        typer.Argument(
            metavar="FIXTURES...", help="Fixtures (a folder with truth.toml and logs/), or folders of them."
        ),
    ],
    everything: Annotated[bool, typer.Option("--all", help="List those that are right, too.")] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML (- for stdout).")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON (- for stdout).")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the accuracy as Markdown tables (- for stdout)."),
    ] = None,
    parsers: ParsersOption = None,
) -> None:
    """Analyse fixtures and compare with their known truth. Exit status 1 on a regression."""
    if sum(str(path) == "-" for path in (junit, json_file, markdown)) > 1:
        fail("only one of --junit, --json and --markdown can go to standard output; name files for the others")

    from logforensics.analysis import cache_folder
    from logforensics.checking.fixtures import REGRESSIONS, FixtureError, check_fixtures, find_fixtures
    from logforensics.signatures import SignatureError, signatures_with

    try:
        found = find_fixtures(fixtures)
        for problem in signatures_with(parsers, cache_folder()).problems:
            typer.echo(f"logforensics: {problem}", err=True)
    except (FixtureError, SignatureError) as error:
        fail(str(error))
    with progress_bar("checking fixtures") as advance:
        results = check_fixtures(found, parsers, advance)
    if all(result.state == "unusable" for result in results):
        more = f" (and {len(results) - 1} more unusable)" if len(results) > 1 else ""
        fail(results[0].problem + more)

    quiet = False
    if junit is not None:
        from logforensics.checking.junit import to_junit

        quiet |= write_text(junit, to_junit(results))
    if json_file is not None:
        from logforensics.checking.documents import json_text

        quiet |= write_text(json_file, json_text(results))
    if markdown is not None:
        from logforensics.checking.documents import to_markdown

        quiet |= write_text(markdown, to_markdown(results))
    from logforensics.checking.annotations import annotations_of
    from logforensics.render.github import annotate, commands_stopped

    annotate(annotations_of(results), quiet=quiet)
    if not quiet:
        from rich.console import Console

        from logforensics.checking.report import print_check

        with commands_stopped():
            print_check(results, Console(soft_wrap=False), everything=everything)
    if any(result.state in REGRESSIONS for result in results):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add ``check`` to the program's commands."""
    app.command("check")(check)
