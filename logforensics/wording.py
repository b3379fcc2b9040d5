"""The sentences that people read: headlines and remedies. Nothing here decides anything."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from logforensics.correlate.facts import Facts, list_ranks
from logforensics.model import Remedy
from logforensics.resources import data_text

if TYPE_CHECKING:
    from logforensics.correlate.incident import Incident

# What happened, as the end of "rank 3 ...".
_HAPPENED = {
    "cuda_oom": "ran out of GPU memory",
    "host_oom": "ran out of host memory",
    "shape_mismatch": "hit a tensor shape mismatch",
    "dataloader": "failed in its data loader",
    "device_assert": "triggered a device-side assert",
    "illegal_memory_access": "made an illegal GPU memory access",
    "nan_loss": "got a NaN or infinite loss",
    "import_error": "could not import a module",
    "config_error": "was misconfigured",
    "user_exception": "raised an exception",
    "checkpoint_error": "failed on a checkpoint",
    "disk_full": "ran out of disk space",
    "hub_download": "could not download from the hub",
    "segfault": "crashed in native code",
    "collective_mismatch": "called a different collective than the others",
    "uneven_inputs": "ran out of batches before the others",
    "slow_rank": "was busy elsewhere while the others waited for it",
    "unused_parameters": "has parameters that got no gradient",
    "zero_mismatch": "gathered other ZeRO parameters than the others",
    "rendezvous": "could not complete the rendezvous",
    "missing_node": "never joined",
    "barrier_timeout": "never reached the barrier",
    "network_interface": "used a network interface that does not reach its peers",
    "network_fabric": "lost the network",
    "gpu_hardware": "had a GPU hardware fault",
    "duplicate_gpu": "shares its GPU with another rank",
    "version_mismatch": "runs library versions that do not fit together",
    "driver_mismatch": "has a GPU driver that does not fit",
    "preempted": "was ended by the scheduler",
    "interrupted": "was interrupted from outside",
    "unknown_timeout": "did not answer until the timeout; why is not established",
    "unknown_exit": "ended without saying why",
}
_RUN_HAPPENED = {
    "rendezvous": "The ranks never found each other: the rendezvous failed",
    "missing_node": "A node never joined the run",
    "preempted": "The scheduler ended the job",
    "duplicate_gpu": "Several ranks use the same GPU",
    "interrupted": "The run was stopped from outside",
    "network_interface": "The ranks cannot reach each other over the chosen network interface",
    "unknown_timeout": "A collective timed out and the logs do not show why",
    "unknown_exit": "The run ended and the logs do not show why",
    "no_failure": "No failure found",
}


def headline(incident: Incident, facts: Facts) -> str:
    """Return the one sentence that a tired person understands."""
    category = incident.category
    if category == "no_failure":
        return "No failure found: the run " + ("finished" if facts.finished else "shows no error in these logs")
    if incident.scope == "run" or (not incident.ranks and category in _RUN_HAPPENED):
        return _RUN_HAPPENED.get(category, f"The run {_HAPPENED[category]}")
    if not incident.ranks:
        return f"A rank that the logs do not name {_HAPPENED[category]}"
    if len(incident.ranks) == 1:
        first = "failed first: it" if incident.status == "diagnosed" and incident.tier < 2 else "is the suspect: it"
        return f"Rank {incident.ranks[0]} {first} {_HAPPENED[category]}"
    everyone = len(incident.ranks) == len(facts.expected)
    who = f"All {len(incident.ranks)} ranks" if everyone else f"Ranks {list_ranks(incident.ranks)}"
    return f"{who} {_plural(_HAPPENED[category])}"


def _plural(words: str) -> str:
    first, _, rest = words.partition(" ")
    changed = {"was": "were", "has": "have", "shares": "share", "runs": "run", "its": "their"}
    rest = rest.replace(" its ", " their ").replace("its ", "their ")
    return f"{changed.get(first, first)} {rest}"


@lru_cache(maxsize=1)
def _remedies() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads(data_text("reports", "remedies.toml"))["remedy"]
    return entries


def remedies_for(category: str, phase: str, incident: Incident) -> list[Remedy]:
    """Return what to do about a category in a phase, with the facts at hand filled in."""
    facts = _facts_of(incident)
    return [
        Remedy(
            entry["id"],
            _filled(entry["title"], facts),
            [_filled(step, facts) for step in entry.get("steps", [])],
            [_filled(command, facts) for command in entry.get("commands", [])],
        )
        for entry in _remedies()
        if category in entry["categories"] and (not entry.get("phases") or phase in entry["phases"])
    ]


def _facts_of(incident: Incident) -> dict[str, str]:
    facts = {"rank": list_ranks(incident.ranks) or "<rank>"}
    for event in reversed(incident.evidence):
        facts.update({key: str(value) for key, value in event.fields.items() if isinstance(value, str | int | float)})
    return facts


def _filled(text: str, facts: dict[str, str]) -> str:
    """Fill ``{name}`` or ``{name|else}`` with a fact, or with the words behind the bar."""
    out, rest = "", text
    while "{" in rest:
        start, _, tail = rest.partition("{")
        inside, closed, rest = tail.partition("}")
        if not closed:
            return out + start + "{" + tail
        name, _, otherwise = inside.partition("|")
        out += start + facts.get(name, otherwise)
    return out + rest
