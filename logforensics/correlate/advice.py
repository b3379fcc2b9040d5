"""Says what is wrong in a run's configuration files, or known to go wrong with them.

Pure: settings in, advice out. Nothing here makes a failure: what contradicts can support what the logs show, and is
advice otherwise.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from logforensics.configs import Config, last_part
from logforensics.correlate.advice_engines import deepspeed_advice, precision_advice, trainer_advice
from logforensics.language import _
from logforensics.model import Advice, Event, Evidence, Verdict

_MOST_ADVICE = 20
_MOST_EVIDENCE = 6
_MOST_NAMED = 4

# Each node has its own file; in these settings all of them must agree. Only machine_rank differs.
_SAME_ON_ALL = (
    "num_machines",
    "num_processes",
    "main_process_ip",
    "main_process_port",
    "same_network",
    "rdzv_backend",
    "distributed_type",
    "mixed_precision",
)
# A node that dials the wrong place, or that nobody expects, never joins.
_NEVER_MET = frozenset({"rendezvous", "missing_node", "network_interface", "barrier_timeout"})

_DOCKER = ipaddress.ip_network("172.17.0.0/16")


def advise(configs: Iterable[Config], world_size: int | None = None) -> list[Advice]:
    """Return what is wrong in the files of one run, contradictions between nodes first.

    ``world_size`` is the number of ranks that the logs show, if they do.
    """
    known = sorted(configs, key=lambda config: config.source)
    found: list[Advice] = []
    for nodes in _sets(known):
        found += _between_nodes(nodes)
    accelerate, deepspeed, trainers = (
        [config for config in known if config.kind == kind] for kind in ("accelerate", "deepspeed", "trainer")
    )
    for config in accelerate:
        found += _accelerate(config, world_size)
    ranks = world_size or next((n for config in accelerate if (n := config.whole("num_processes"))), None)
    for config in deepspeed:
        found += deepspeed_advice(config, ranks, filled=bool(accelerate or trainers))
    for config in trainers:
        found += trainer_advice(config, known)
    found += precision_advice(known)
    return sorted(dict.fromkeys(found), key=lambda advice: not advice.supports)[:_MOST_ADVICE]


def support(verdict: Verdict, advice: list[Advice], configs: dict[str, Config], events: list[Event]) -> None:
    """Put what the files contradict behind the logs' own evidence for the verdict. It never decides what failed."""
    if not advice or verdict.status == "no_failure":
        return
    verdict.explanation.append(_("The configuration files fit this: {what}.").format(what=advice[0].told))
    if verdict.confidence == "low":
        verdict.confidence = "medium"
    for item in advice:
        config = configs[item.source]
        event = next((e for e in events if e.stream == "config" and e.source == item.source), None)
        if event is None or any(evidence.source == item.source for evidence in verdict.evidence):
            continue
        del verdict.evidence[_MOST_EVIDENCE - 1 :]  # one place is theirs, behind the logs' own
        event.line = event.end_line = item.line
        event.offset = config.offset(item.line)
        verdict.evidence.append(
            Evidence(
                source=item.source,
                line=item.line,
                end_line=item.line,
                text=config.said_at(item.line) or event.message,
                node=event.node,
                event_id=event.event_id,
            )
        )


# -- between nodes -------------------------------------------------------------------------------------------------


def _alike(name: str) -> str:
    """A name with each of its numbers, however long, left out."""
    return "".join("#" if number else "".join(run) for number, run in groupby(name, str.isdecimal))


def _sets(configs: list[Config]) -> list[list[Config]]:
    """The files that belong to the nodes of one run: alike by name, or all of them of a run of several machines."""
    accelerate = [config for config in configs if config.kind == "accelerate"]
    alike: dict[str, list[Config]] = defaultdict(list)
    for config in accelerate:
        alike[_alike(last_part(config.source))].append(config)
    found = [own for own in alike.values() if len(own) > 1]
    if not found and len(accelerate) > 1 and all((config.whole("num_machines") or 1) > 1 for config in accelerate):
        found = [accelerate]
    return [own for own in found if any((config.whole("num_machines") or 1) > 1 for config in own)]


def _between_nodes(configs: list[Config]) -> Iterator[Advice]:
    first = configs[0]
    for key in _SAME_ON_ALL:
        values: dict[str, list[Config]] = defaultdict(list)
        for config in configs:
            values[(config.text(key) or _("not set")).lower()].append(config)
        if len(values) > 1:
            told = "; ".join(f"{value}: {_named(own)}" for value, own in values.items())
            # between two nodes, machine 0 is the one that the others go by
            odd = min(values.values(), key=lambda own: (len(own), any(c.whole("machine_rank") == 0 for c in own)))[0]
            text = _("{key} must be the same on every node, only machine_rank may differ ({values})")
            yield Advice(odd.source, odd.line(key), text.format(key=key, values=told), _NEVER_MET)
    ranks = Counter(rank for config in configs if (rank := config.whole("machine_rank")) is not None)
    for rank, count in sorted(ranks.items()):
        if count > 1:
            own = [config for config in configs if config.whole("machine_rank") == rank]
            text = _("machine_rank {rank} is given to {count} nodes ({files}); each node needs its own")
            yield Advice(
                own[1].source,
                own[1].line("machine_rank"),
                text.format(rank=rank, count=count, files=_named(own)),
                _NEVER_MET,
            )
    machines = first.whole("num_machines") or len(configs)
    gaps = sorted(set(range(machines)) - set(ranks))
    if gaps and len(configs) >= machines and max(ranks.values(), default=0) == 1:
        text = _("no node has machine_rank {ranks}: the ranks of {count} machines are 0 to {last}")
        yield Advice(
            first.source,
            first.line("machine_rank"),
            text.format(ranks=", ".join(map(str, gaps[:_MOST_NAMED])), count=machines, last=machines - 1),
            _NEVER_MET,
        )


def _named(configs: list[Config]) -> str:
    names = [config.source for config in configs]
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


# -- accelerate ----------------------------------------------------------------------------------------------------


def _accelerate(config: Config, world_size: int | None) -> Iterator[Advice]:
    machines, processes = config.whole("num_machines") or 1, config.whole("num_processes")
    rank = config.whole("machine_rank") or 0

    def say(key: str, text: str, supports: frozenset[str] = frozenset()) -> Advice:
        return Advice(config.source, config.line(key), text, supports)

    if machines > 1:
        yield from _meeting_place(config)
        if rank >= machines:
            text = _("machine_rank {rank} does not exist among {machines} machines: they count from 0")
            yield say("machine_rank", text.format(rank=rank, machines=machines), _NEVER_MET)
        if processes is not None and processes % machines:
            text = _(
                "num_processes {processes} cannot be shared equally by {machines} machines; it counts the processes of "
                "all machines together"
            )
            yield say("num_processes", text.format(processes=processes, machines=machines), _NEVER_MET)
    kind = (config.text("distributed_type") or "NO").upper()
    if kind in {"NO", "FALSE"} and (machines > 1 or (processes or 1) > 1):
        yield say(
            "distributed_type",
            _("distributed_type NO starts one process, whatever num_processes and num_machines say; use MULTI_GPU"),
            _NEVER_MET if machines > 1 else frozenset(),
        )
    if world_size and processes and processes != world_size:
        text = _(
            "num_processes is {processes}, but the logs show a run of {size} ranks: is this the file it was run with?"
        )
        yield say("num_processes", text.format(processes=processes, size=world_size))


def _meeting_place(config: Config) -> Iterator[Advice]:
    address = config.text("main_process_ip")
    place = config.source, config.line("main_process_ip")
    if address is None:
        yield Advice(
            *place,
            _("main_process_ip is not set, but the run has several machines: every node waits for itself"),
            _NEVER_MET,
        )
        return
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        if address.lower() in {"localhost", "localhost.localdomain"}:
            number = ipaddress.ip_address("127.0.0.1")
        else:
            return
    if number.is_loopback or number.is_unspecified:
        text = _("main_process_ip {address} is each node itself; use the address of machine 0 that the others reach")
    elif number.is_link_local or (number.version == 4 and number in _DOCKER):
        text = _(
            "main_process_ip {address} is a container's or a link's own network; use an address that all nodes reach"
        )
    else:
        return
    yield Advice(*place, text.format(address=address), _NEVER_MET)
