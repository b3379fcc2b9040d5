"""Analyses built by hand for the tests of the reports: one ordinary, one huge, one whose logs are hostile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from logforensics.analysis import Analysis
from logforensics.identity import Identity
from logforensics.layout import Hints
from logforensics.model import (
    Alternative,
    AttemptVerdict,
    ChainLink,
    CollectiveState,
    Event,
    Evidence,
    Note,
    RankState,
    Remedy,
    Ruling,
    Verdict,
)
from logforensics.sources import Source

START = 1_780_000_000_000_000
SECOND = 1_000_000

# Everything that a log could try on a terminal, a template or a page.
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \"' {{ 7*7 }} {% for x in y %} ${x} "
    "[bold red]boom[/bold red] [link=file:///etc/passwd]x[/link] [/] :smile: \x1b[31mred\x1b[0m "
    "\x1b]8;;file:///x\x07link\x1b]8;;\x07 \x1b]0;title\x07 \x9b2J \x00 \x07 \x08 \r over \u202etxt.exe\u2066 "
    "\u200bzero \udc80 \ud800 \u2028 </pre></style></title>"
)


def event(rank: int | None, message: str, seconds: float, **more: Any) -> Event:
    values: dict[str, Any] = {
        "source": f"logs/rank{rank}.log",
        "line": 10,
        "end_line": 10,
        "offset": 0,
        "kind": "exception",
        "signature": "python/exception",
        "role": "cause",
        "message": message,
        "rank": rank,
        "node": "node0",
        "time_us": START + int(seconds * SECOND),
        "time_basis": "stamped",
        "category": "user_exception",
    }
    return Event(**{**values, **more})


def timeout(rank: int, seconds: float, **more: Any) -> Event:
    values = {
        "message": f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={100 + rank}, OpType=ALLREDUCE)",
        "kind": "timeout",
        "role": "symptom",
        "category": "unknown_timeout",
        "signature": "pg_nccl/watchdog-timeout",
    }
    return event(rank, seconds=seconds, **{**values, **more})


def analysis_of(
    firsts: list[Event], ranks: list[RankState], *, text: str = "ValueError: boom", **verdict: Any
) -> Analysis:
    """Build a whole analysis around first exceptions and rank states; ``text`` goes wherever log text can go."""
    events = sorted(firsts, key=lambda item: item.time_us or 0)
    for number, item in enumerate(events):
        item.event_id = number
    first = events[0]
    values: dict[str, Any] = {
        "status": "diagnosed",
        "category": "user_exception",
        "ranks": [1],
        "nodes": ["node0"],
        "phase": "mid_training",
        "confidence": "high",
        "headline": "Rank 1 failed first: it raised an exception",
        "explanation": [f"It came 600.0 s before the others gave up: {text}"],
        "evidence": [
            Evidence(first.source, 10, 11, text, first.rank, first.node, first.time_us, first.event_id),
            Evidence("launcher.log", 3, 3, text, None, None, None, -1),
        ],
        "alternatives": [Alternative("network_fabric", [0, 2], f"it came later than {text}")],
        "missing": [f"no log of rank 7: {text}"],
        "remedies": [Remedy("user-exception", f"Fix {text}", [f"Read {text}", "Rerun"], [f"echo '{text}'"])],
        "rulings": [
            Ruling("own-failure", f"raised {text}", [1], decided=True),
            Ruling("survived", "1 earlier failure was caught", []),
        ],
    }
    result = Analysis(
        verdict=Verdict(**{**values, **verdict}),
        ranks=ranks,
        first_exceptions=firsts,
        chain=[
            ChainLink(0, first.rank, first.time_us, f"rank 1: {text}", "the first failure"),
            ChainLink(-1, None, None, "the others wait", f"rank 1 was missing: {text}"),
        ],
        collectives=[
            CollectiveState(
                text, 100, "ALLREDUCE", [0, 2, 3], [1], [{"rank": 2, "operation": text, "numel_in": 4}], START
            )
        ],
        events=events,
        sources=[Source(first.source, Path("x"), 1234, 0, "log", Hints())],
        notes=[Note(text, f"could not be read: {text}")],
        identity=Identity(world_size=len(ranks)),
        attempts=[
            AttemptVerdict(
                number,
                "diagnosed",
                "user_exception",
                [1],
                "mid_training",
                "high",
                f"Rank 1 failed first: {text}",
                Evidence(first.source, 10, 11, text, first.rank, first.node, first.time_us, first.event_id),
                first.time_us,
                None,
                812,
            )
            for number in (0, 1)
        ],
        facts={"torch": text},
    )
    around = [(9, "before " + text), (10, text), (11, text), (12, "x" * 100_000)]
    result.excerpts = {0: around}  # type: ignore[attr-defined]
    return result


def ordinary() -> Analysis:
    """Four ranks: rank 1 fails, two wait until the timeout, one is torn down."""
    firsts = [event(1, "ValueError: boom", 0), timeout(0, 600), timeout(2, 600.01)]
    ranks = [
        RankState(
            0,
            "node0",
            0,
            100,
            "timed_out",
            41,
            START,
            "training",
            -6,
            "SIGABRT",
            None,
            "it waited until the timeout",
        ),
        RankState(1, "node0", 1, 101, "origin", 41, START, "training", 1, None, 0, "it failed first"),
        RankState(
            2,
            "node0",
            2,
            102,
            "timed_out",
            42,
            START,
            "training",
            -6,
            "SIGABRT",
            None,
            "it waited until the timeout",
        ),
        RankState(
            3,
            None,
            None,
            None,
            "torn_down",
            None,
            None,
            None,
            -15,
            "SIGTERM",
            None,
            "its launcher stopped it",
        ),
    ]
    return analysis_of(firsts, ranks)


def huge(world: int = 2048) -> Analysis:
    """Many ranks on many nodes; one fails, all others wait."""
    firsts = [event(1, "ValueError: boom", 0)]
    firsts += [timeout(rank, 600 + rank / 1000, node=f"node{rank // 8}") for rank in range(world) if rank != 1]
    ranks = [
        RankState(
            rank,
            f"node{rank // 8}",
            fate="origin" if rank == 1 else "timed_out",
            last_step=rank % 3,
            why="so",
        )
        for rank in range(world)
    ]
    return analysis_of(firsts, ranks)


def hostile() -> Analysis:
    """Hostile text in every place that a log can reach."""
    firsts = [
        event(1, HOSTILE, 0, source=f"{HOSTILE}/a.log", node=HOSTILE),
        timeout(0, 600, message=HOSTILE + "y" * 50_000),
    ]
    ranks = [
        RankState(0, HOSTILE, fate="timed_out", why=HOSTILE, signal=HOSTILE),
        RankState(1, HOSTILE, fate="origin"),
    ]
    result = analysis_of(firsts, ranks, text=HOSTILE, headline=HOSTILE, nodes=[HOSTILE])
    result.verdict.evidence[0] = replace(result.verdict.evidence[0], source=f"{HOSTILE}/a.log")
    return result


def fleet(world: int, per_node: int = 8) -> Analysis:
    """A large run as it really looks: a rank runs out of memory, one node falls silent, all others wait in vain."""
    guilty, quiet_node = world // 3, f"node{world // per_node // 2}"
    events: list[Event] = []
    ranks: list[RankState] = []
    for rank in range(world):
        node = f"node{rank // per_node}"
        own: dict[str, Any] = {"node": node, "local_rank": rank % per_node, "pid": 4000 + rank}
        fate = "origin" if rank == guilty else "silent" if node == quiet_node else "timed_out"
        context = {"kind": "init", "role": "context", "category": None, "signature": "environment/init-done"}
        events.append(event(rank, f"init done: rank={rank} world={world}", -60, **own, **context))
        for step in (0, 1, 2, 811, 812):
            sign = {"kind": "progress", "role": "progress", "category": None, "signature": "progress/step-line"}
            seconds = step - 813 + rank / world / 10
            events.append(event(rank, f"step {step} loss 2.{rank % 89}", seconds, line=100 + step, **own, **sign))
        if fate == "origin":
            message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
            events.append(event(rank, message, 0, line=950, **own, category="cuda_oom", signature="cuda/out-of-memory"))
        elif fate == "timed_out":
            wait = {"elapsed_ms": 600_000 + rank % 50, "timeout_ms": 600_000}
            late = 600.4 + rank / world
            known = {"fields": wait, "sequence": 4711, "operation": "ALLREDUCE"}
            events.append(timeout(rank, late, line=960, **own, **known))
            state = {"kind": "collective", "role": "symptom", "category": None, "signature": "pg_nccl/work-status"}
            events.append(event(rank, "last enqueued work: 4711, last completed: 4710", late + 0.1, **own, **state))
            stop = {"kind": "teardown", "role": "teardown", "category": None, "stream": "launcher"}
            told = f"Sending process {4000 + rank} closing signal SIGTERM"
            source = f"{node}/launcher.log"
            signature = "torchelastic/closing-signal"
            events.append(event(rank, told, 603, source=source, signature=signature, **own, **stop))
        ranks.append(RankState(rank, node, rank % per_node, 4000 + rank, fate, 812, START + SECOND, why=f"as {fate}"))
    for node in range(world // per_node):
        ending = {"kind": "exception", "role": "teardown", "category": None, "stream": "launcher"}
        source = f"node{node}/launcher.log"
        events.append(event(None, "ChildFailedError:", 604 + node / 1000, node=f"node{node}", source=source, **ending))
    firsts = [item for item in events if item.role == "cause" or item.kind == "timeout"]
    firsts.sort(key=lambda item: item.time_us or 0)
    analysis = analysis_of(firsts, ranks, text="torch.OutOfMemoryError: CUDA out of memory")
    analysis.verdict.ranks, analysis.verdict.nodes = [guilty], [f"node{guilty // per_node}"]
    events.sort(key=lambda item: item.time_us or 0)
    for number, item in enumerate(events):
        item.event_id = number
    analysis.events = events
    cause = firsts[0]
    analysis.verdict.category, analysis.verdict.headline = (
        "cuda_oom",
        f"Rank {guilty} failed first: it ran out of memory",
    )
    analysis.verdict.evidence = [
        Evidence(cause.source, 950, 950, cause.message, guilty, cause.node, cause.time_us, cause.event_id)
    ]
    analysis.chain = [ChainLink(cause.event_id, guilty, cause.time_us, cause.message, "the first failure")]
    waiting = [state.rank for state in ranks if state.fate == "timed_out"]
    absent = [state.rank for state in ranks if state.fate != "timed_out"]
    analysis.collectives = [CollectiveState("0", 4711, "ALLREDUCE", waiting, absent, [], START)]
    analysis.sources = [Source(f"logs/rank{rank}.log", Path("x"), 50_000, 0, "log", Hints()) for rank in range(world)]
    analysis.excerpts = {cause.event_id: [(949, "step 812"), (950, cause.message), (951, "")]}
    return analysis
