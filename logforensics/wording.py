"""The sentences that people read: headlines and remedies. Nothing here decides anything."""

from __future__ import annotations

import shlex
import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from logforensics.correlate.facts import Facts
from logforensics.language import _, later, list_ranks
from logforensics.model import Remedy
from logforensics.resources import data_text

if TYPE_CHECKING:
    from logforensics.correlate.incident import Incident

# What happened, as the end of "rank 3 ...".
_HAPPENED = {
    "cuda_oom": later("ran out of GPU memory"),
    "host_oom": later("ran out of host memory"),
    "shape_mismatch": later("hit a tensor shape mismatch"),
    "dataloader": later("failed in its data loader"),
    "device_assert": later("triggered a device-side assert"),
    "illegal_memory_access": later("made an illegal GPU memory access"),
    "nan_loss": later("got a NaN or infinite loss"),
    "import_error": later("could not import a module"),
    "config_error": later("was misconfigured"),
    "user_exception": later("raised an exception"),
    "checkpoint_error": later("failed on a checkpoint"),
    "disk_full": later("ran out of disk space"),
    "hub_download": later("could not download from the hub"),
    "segfault": later("crashed in native code"),
    "collective_mismatch": later("called a different collective than the others"),
    "uneven_inputs": later("ran out of batches before the others"),
    "slow_rank": later("was busy elsewhere while the others waited for it"),
    "unused_parameters": later("has parameters that got no gradient"),
    "zero_mismatch": later("gathered other ZeRO parameters than the others"),
    "rendezvous": later("could not complete the rendezvous"),
    "missing_node": later("never joined"),
    "barrier_timeout": later("never reached the barrier"),
    "network_interface": later("used a network interface that does not reach its peers"),
    "network_fabric": later("lost the network"),
    "gpu_hardware": later("had a GPU hardware fault"),
    "duplicate_gpu": later("shares its GPU with another rank"),
    "version_mismatch": later("runs library versions that do not fit together"),
    "driver_mismatch": later("has a GPU driver that does not fit"),
    "preempted": later("was ended by the scheduler"),
    "interrupted": later("was interrupted from outside"),
    "unknown_timeout": later("did not answer until the timeout; why is not established"),
    "unknown_exit": later("ended without saying why"),
}
# How sure a verdict is.
SURE = {"high": later("high"), "medium": later("medium"), "low": later("low")}
_RUN_HAPPENED = {
    "rendezvous": later("The ranks never found each other: the rendezvous failed"),
    "missing_node": later("A node never joined the run"),
    "preempted": later("The scheduler ended the job"),
    "duplicate_gpu": later("Several ranks use the same GPU"),
    "interrupted": later("The run was stopped from outside"),
    "network_interface": later("The ranks cannot reach each other over the chosen network interface"),
    "unknown_timeout": later("A collective timed out and the logs do not show why"),
    "unknown_exit": later("The run ended and the logs do not show why"),
    "no_failure": later("No failure found"),
}


def headline(incident: Incident, facts: Facts) -> str:
    """Return the one sentence that a tired person understands."""
    category = incident.category
    if category == "no_failure":
        if facts.finished:
            return _("No failure found: the run finished")
        return _("No failure found: the run shows no error in these logs")
    if incident.scope == "run" or (not incident.ranks and category in _RUN_HAPPENED):
        if category in _RUN_HAPPENED:
            return _(_RUN_HAPPENED[category])
        return _("The run failed: it {happened}").format(happened=_(_HAPPENED[category]))
    if not incident.ranks:
        return _("A rank that the logs do not name failed first: it {happened}").format(happened=_(_HAPPENED[category]))
    if len(incident.ranks) == 1:
        sure = incident.status == "diagnosed" and incident.tier < 2
        words = _("Rank {rank} failed first: it {happened}") if sure else _("Rank {rank} is the suspect: it {happened}")
        return words.format(rank=incident.ranks[0], happened=_(_HAPPENED[category]))
    if len(incident.ranks) < len(facts.expected):
        words = _("Ranks {ranks} failed first: each {happened}")
    elif len(incident.ranks) == 2:
        words = _("Both ranks failed: each {happened}")
    else:
        words = _("All {count} ranks failed: each {happened}")
    return words.format(ranks=list_ranks(incident.ranks), count=len(incident.ranks), happened=_(_HAPPENED[category]))


def happened(incident: Incident) -> str:
    """Return what happened, as the end of "rank 3 ..."."""
    said = _HAPPENED.get(incident.category)
    return _(said) if said else _("shows no failure")


@lru_cache(maxsize=1)
def _remedies() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads(data_text("reports", "remedies.toml"))["remedy"]
    return entries


def remedies_for(category: str, phase: str, incident: Incident) -> list[Remedy]:
    """Return what to do about a category in a phase, with the facts at hand filled in."""
    facts = _facts_of(incident)
    quoted = {name: shlex.quote(value) for name, value in facts.items()}  # log text must not become shell syntax
    return [
        Remedy(
            entry["id"],
            _filled(_(entry["title"]), facts),
            [_filled(_(step), facts) for step in entry.get("steps", [])],
            [_filled(command, quoted) for command in entry.get("commands", [])],
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
        start, _open, tail = rest.partition("{")
        inside, closed, rest = tail.partition("}")
        if not closed:
            return out + start + "{" + tail
        name, _bar, otherwise = inside.partition("|")
        out += start + facts.get(name, otherwise)
    return out + rest
