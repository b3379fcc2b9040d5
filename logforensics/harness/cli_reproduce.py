"""The ``reproduce`` command: one run or a matrix of them, into fixtures."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer

INSTALL = "needs torch: pip install 'logforensics[harness]' (CPU build of torch is enough)"


def _complain(text: str) -> typer.Exit:
    typer.echo(f"logforensics reproduce: {text}", err=True)
    return typer.Exit(2)


def _missing() -> str | None:
    return INSTALL if importlib.util.find_spec("torch") is None else None


def _typed(settings: list[str]) -> dict[str, Any]:
    from logforensics.harness.plan import Plan

    usual, values = Plan(), {}
    for setting in settings:
        key, _, text = setting.partition("=")
        if not hasattr(usual, key):
            raise ValueError(f"--set {setting}: unknown key {key!r}")
        kind: type = type(getattr(usual, key))
        try:
            values[key] = text.lower() in ("true", "1", "yes") if kind is bool else kind(text)
        except ValueError:
            raise ValueError(f"--set {setting}: should be of type {kind.__name__}") from None
    return values


def _show_list() -> None:
    from logforensics.harness.faults import FAULTS
    from logforensics.harness.matrix import pairs

    refused: dict[str, list[str]] = {}
    for strategy, name, reason in pairs():
        if reason is not None:
            refused.setdefault(name, []).append(strategy)
    width = max(map(len, FAULTS))
    for fault in FAULTS.values():
        where = f" [{fault.device}]" if fault.device else ""
        typer.echo(f"{fault.name:{width}}  {fault.injects}{where}")
        if fault.name in refused:
            typer.echo(f"{'':{width}}    not for {', '.join(refused[fault.name])}: {fault.because}")


def _run(plans: list[Any], out: Path, jobs: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from logforensics.harness.matrix import Row, make_many

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("runs", total=len(plans))

        def tell(row: Row) -> None:
            progress.update(bar, advance=1, description=row.plan.name)
            took = f" ({row.outcome.seconds} s{', ended' * row.outcome.ended})" if row.outcome else ""
            typer.echo(f"{row.state:8}{row.plan.name}{took}{': ' + row.detail if row.detail else ''}")

        rows = make_many(plans, out, jobs, tell)
    counts = {state: sum(row.state == state for row in rows) for state in ("made", "skipped", "wrong", "broken")}
    typer.echo(", ".join(f"{count} {state}" for state, count in counts.items() if count) + f"; in {out}")
    if counts["wrong"] or counts["broken"] or not counts["made"]:
        raise typer.Exit(1)


def reproduce(
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder that gets one fixture a run.")] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="ddp, fsdp1-full_shard, fsdp2, zero1, zero2, zero3, ...")
    ] = "ddp",
    fault: Annotated[str, typer.Option(metavar="NAME", help="What to inject; --list names them.")] = "none",
    launcher: Annotated[
        str, typer.Option(metavar="NAME", help="torchrun, accelerate, deepspeed, spawn or processes.")
    ] = "torchrun",
    layout: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="logdir, tee, combined, per_rank, srun, mpirun, kubectl or ray; empty: the usual."
        ),
    ] = "",
    nproc: Annotated[int, typer.Option(metavar="N", min=1, help="Ranks a node.")] = 2,
    nnodes: Annotated[int, typer.Option(metavar="N", min=1, help="Nodes, all on this machine over loopback.")] = 1,
    rank: Annotated[int, typer.Option(metavar="N", min=0, help="The rank that is broken.")] = 1,
    at_step: Annotated[int, typer.Option(metavar="N", min=0, help="The step before which it breaks.")] = 3,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    backend: Annotated[str, typer.Option(metavar="NAME", help="gloo or nccl; empty: what fits the device.")] = "",
    dialect: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How the script logs: print, logging-timed, logging-plain, tqdm, trainer, megatron."
        ),
    ] = "logging-timed",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other key of a plan: --set debug=DETAIL --set timeout=8"),
    ] = None,
    matrix: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="cpu, one-gpu, multi-gpu or a TOML file: many runs instead of one.")
    ] = "",
    jobs: Annotated[int, typer.Option(metavar="N", min=0, help="Runs at a time; 0: one per two cores.")] = 0,
    list_faults: Annotated[bool, typer.Option("--list", help="Name the faults and where they make no sense.")] = False,
) -> None:
    """Make a real failure with known truth: strategy x fault x launcher x layout -> a fixture."""
    from logforensics.harness.faults import FAULTS, refuse
    from logforensics.harness.matrix import read_matrix, unavailable
    from logforensics.harness.plan import LAYOUTS_OF, Plan

    if list_faults:
        _show_list()
        return
    if out is None:
        raise _complain("say where the fixtures go: --out DIR")
    try:
        if matrix:
            plans = read_matrix(matrix)
        else:
            values = {
                "strategy": strategy,
                "fault": fault,
                "launcher": launcher,
                "layout": layout or LAYOUTS_OF.get(launcher, ("logdir",))[0],
                "nproc": nproc,
                "nnodes": nnodes,
                "rank": rank,
                "at_step": at_step,
                "device": device,
                "backend": backend or ("nccl" if device == "cuda" else "gloo"),
                "dialect": dialect,
                **_typed(settings or []),
            }
            plans = [Plan.from_mapping(values)]
            reason = refuse(plans[0]) or (unavailable(plans[0]) if _missing() is None else None)
            if reason is not None:
                raise ValueError(reason)
            if (out / plans[0].name).exists():
                raise ValueError(f"{out / plans[0].name} exists; remove it to make it again")
        unknown = next((plan.fault for plan in plans if plan.fault not in FAULTS), None)
        if unknown is not None:
            raise ValueError(f"unknown fault {unknown!r}; --list names them")
    except ValueError as error:
        raise _complain(str(error)) from None
    missing = _missing()
    if missing is not None:
        raise _complain(missing)
    _run(plans, out, jobs)


def register(app: typer.Typer) -> None:
    """Add ``reproduce`` to the program's commands."""
    app.command("reproduce")(reproduce)
