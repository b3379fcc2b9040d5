"""Culprits that wrote no error: stuck elsewhere, out of batches, gone without a word, never started.

What the others waited for, and what the missing rank was last seen doing, is all the evidence there is; so
these verdicts are never of high confidence unless a line names the absent rank.
"""

from __future__ import annotations

from logforensics.correlate.collectives import Stuck, find_stuck, laggards
from logforensics.correlate.facts import Facts, is_training_step, wrote
from logforensics.correlate.incident import Incident, before
from logforensics.correlate.joining import never_joined, whole_node
from logforensics.correlate.recorded import join_recorded, recorded_incident
from logforensics.language import _, later, name_ranks, several
from logforensics.model import Event

# What a rank does elsewhere -> category, phase.
_BUSY = {
    "evaluation": ("slow_rank", None),
    "checkpoint_save": ("slow_rank", "checkpoint"),
    "checkpoint_load": ("slow_rank", None),
    "data_preparation": ("slow_rank", "launch"),
    "model_load": ("slow_rank", "launch"),
    "download": ("slow_rank", "launch"),
    "compile": ("slow_rank", None),
    "data_loading": ("slow_rank", None),
    "init": ("slow_rank", "first_collective"),
}
_DONE = {"epoch_end", "finished", "shutdown"}
_WORDS = {
    "evaluation": later("in an evaluation"),
    "checkpoint_save": later("saving a checkpoint"),
    "checkpoint_load": later("loading a checkpoint"),
    "data_preparation": later("preparing data"),
    "model_load": later("loading the model"),
    "download": later("downloading"),
    "compile": later("compiling"),
    "data_loading": later("loading data"),
    "init": later("initialising"),
}


def find_silent(facts: Facts) -> tuple[list[Incident], list[Stuck]]:
    """Return the incidents that can be inferred from who waited and who did not, and the stuck collectives."""
    stuck = join_recorded(find_stuck(facts), facts)
    incidents: list[Incident] = []
    if stuck:
        incidents += _of_collective(stuck[0], facts)
    elif any(own.victim for own in facts.ranks.values()):
        incidents += _of_lost_peers(facts)
    elif facts.timeouts or any(wrote(event) for event in facts.symptoms):
        incidents += [_nobody_named(facts)]
    return incidents, stuck


# -- somebody waited ----------------------------------------------------------------------------------------------


def _of_collective(stuck: Stuck, facts: Facts) -> list[Incident]:
    state = stuck.recorded
    if state is not None and (stuck.outliers or state.crossed):
        return [recorded_incident(stuck, state, facts)]
    if stuck.outliers:
        return [_mismatch(stuck)]
    if stuck.told:
        return [_busy(stuck, facts) or _told(stuck, facts)]
    for rule in (_left_early, _busy, _further):
        found = rule(stuck, facts)
        if found:
            return [found]
    if state is not None:
        return [recorded_incident(stuck, state, facts)]
    counted = never_joined(stuck, facts)
    if counted:
        return [counted]
    return [_absent(stuck, facts) if stuck.absent else _all_wait(stuck, facts)]


def _nobody_named(facts: Facts) -> Incident:
    """Somebody waited or lost a peer, and no line says which rank wrote that."""
    told = facts.timeouts + facts.symptoms
    said = next((event for event in told if event.category not in {None, "unknown_timeout"}), told[0])
    joined, size = said.fields.get("joined"), said.fields.get("world_size")
    counted = joined is not None and size is not None and joined < size
    category = said.category or "unknown_timeout"
    return Incident(
        category,
        [said, *[event for event in told if event is not said]],
        [],
        "waited-for-nobody-knows-whom",
        tier=0 if counted else 2,
        scope="run",
        status="diagnosed" if counted else "undetermined",
        why=[
            _("only {joined} of {size} processes ever joined").format(joined=joined, size=size)
            if counted
            else _("the logs do not say which rank waited, nor for whom")
        ],
        confidence="medium" if counted else "low",
    )


def _mismatch(stuck: Stuck) -> Incident:
    operations = {call.operation for call in stuck.calls}
    outliers = stuck.outliers
    minority = len(outliers) * 2 < len(stuck.calls)
    sharded = any((call.operation or "").upper() in {"_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"} for call in outliers)
    first = outliers[0]
    why = _(
        "rank {rank} is in {operation} with {size} elements where the others have another operation or size at "
        "collective {sequence}"
    ).format(rank=first.rank, operation=first.operation, size=first.sizes[0], sequence=first.sequence)
    return Incident(
        "zero_mismatch" if sharded and len(operations) == 1 else "collective_mismatch",
        [call.event for call in outliers],
        [call.rank for call in outliers],
        "different-collectives",
        tier=0,
        why=[why],
        confidence="medium" if minority else "low",
    )


def _told(stuck: Stuck, facts: Facts) -> Incident:
    """A line names the ranks that did not come (monitoredBarrier, desync report, store barrier)."""
    # the line that names all of them says most, and the exception says it last
    told = sorted(
        stuck.told, key=lambda e: (-len(str(e.fields["absent_ranks"])), not e.fields.get("raised"), e.event_id)
    )
    node = whole_node(stuck.absent, facts)
    why = [_("{ranks} never arrived").format(ranks=name_ranks(stuck.absent))]
    if node:
        why.append(_("they are all the ranks of one node, so look at the node, not at a rank"))
    starting = any(event.fields.get("activity") == "rendezvous" for event in told)
    return Incident(
        "missing_node" if node else "rendezvous" if starting else "barrier_timeout",
        told,
        stuck.absent,
        "named-absent",
        tier=0,
        scope="rank",
        why=why,
        confidence="medium",
    )


def _left_early(stuck: Stuck, facts: Facts) -> Incident | None:
    """Some ranks say that their epoch is over while others are still in a step: they ran out of batches."""
    over = []
    for rank, own in facts.ranks.items():
        last = own.last_activity
        if last is not None and last.fields.get("activity") in _DONE and last.role == "context":
            over.append(rank)
    still = [rank for rank, own in facts.ranks.items() if own.victim and rank not in over]
    if over and still:
        said = [facts.ranks[rank].last_activity for rank in sorted(over)]
        return Incident(
            "uneven_inputs",
            [event for event in said if event is not None],
            sorted(over),
            "out-of-batches",
            tier=0,
            phase="epoch_end",
            why=[
                _("{ranks} had reached the epoch's end while the others were still in a step").format(
                    ranks=name_ranks(sorted(over))
                )
            ],
            confidence="medium",
        )
    return None


def _further(stuck: Stuck, facts: Facts) -> Incident | None:
    """Some ranks got through more batches than all that wait, and nothing says that they did something else."""
    ahead = _ahead(stuck, facts)
    if ahead:
        return Incident(
            "uneven_inputs",
            [call.event for call in sorted(stuck.calls, key=lambda call: call.event.event_id)],
            ahead,
            "further-than-those-who-wait",
            tier=0,
            phase="epoch_end",
            why=[
                several(
                    "{ranks} got through more batches than those that wait, and does not wait",
                    "{ranks} got through more batches than those that wait, and do not wait",
                    len(ahead),
                ).format(ranks=name_ranks(ahead))
            ],
            confidence="low",
        )
    return None


def _ahead(stuck: Stuck, facts: Facts) -> list[int]:
    """Ranks that do not wait and whose counter is beyond that of every rank that does."""
    waiting = {call.rank for call in stuck.calls}
    steps: dict[int, tuple[float, int]] = {}
    for rank, own in facts.ranks.items():
        last = next((e for e in reversed(own.progress) if "step" in e.fields and is_training_step(e)), None)
        if last is not None:
            steps[rank] = (float(last.fields.get("epoch", 0)), int(last.fields["step"]))
    behind = [steps[rank] for rank in waiting if rank in steps]
    if not behind or len(behind) * 2 < len(waiting):
        return []
    furthest = max(behind)
    gone = sorted(rank for rank, place in steps.items() if rank not in waiting and place > furthest)
    return gone if set(gone) == set(steps) - waiting else []


def _absent(stuck: Stuck, facts: Facts) -> Incident:
    names = name_ranks(stuck.absent)
    evidence = [call.event for call in stuck.calls]
    said = [own.last_said for rank in stuck.absent if (own := facts.ranks.get(rank)) and own.last_said]
    known = all(rank in facts.ranks for rank in stuck.absent)
    return Incident(
        "unknown_timeout",
        evidence + [event for event in said if event is not None],
        stuck.absent if known else [],
        "absent-without-a-word",
        tier=2,
        status="undetermined",
        why=[
            (
                _("{ranks} did not enter the collective that the others wait in, and wrote nothing that says why")
                if known
                else _("there is no log of {ranks}, which the others waited for")
            ).format(ranks=names)
        ],
        confidence="low",
    )


def _busy(stuck: Stuck, facts: Facts) -> Incident | None:
    """The last thing that an absent rank was seen doing before the others gave up."""
    absent = stuck.absent
    limit = facts.first_timeout
    found: list[tuple[Event, int | None]] = []
    for rank in absent:
        own = facts.ranks.get(rank)
        done = [e for e in (own.activities if own else []) if limit is None or before(e, limit) is not False]
        if len(absent) == 1 or rank == 0:
            # lines without a rank are usually rank 0's; with one absent rank they are the absent one's words
            done += [e for e in facts.activities if e.rank is None and (limit is None or before(e, limit) is not False)]
        last = max(done, key=lambda e: e.event_id, default=None)
        if last is not None and last.fields["activity"] in _BUSY:
            if last.role == "progress" and not _keeps_saying(last, facts):
                continue
            found.append((last, rank))
    if not found:
        return None
    activity = found[0][0].fields["activity"]
    category, phase = _BUSY[activity]
    if phase == "launch" and facts.trained:
        phase = None
    ranks = [rank for event, rank in found if rank is not None and event.fields["activity"] == activity]
    return Incident(
        category,
        [event for event, _ in found],
        ranks,
        "busy-elsewhere",
        tier=0,
        phase=phase,
        why=[
            several(
                "{ranks} was {doing} while the others waited for it",
                "{ranks} were {doing} while the others waited for them",
                len(ranks),
            ).format(ranks=name_ranks(ranks), doing=_(_WORDS[activity]))
        ],
        confidence="medium",
    )


def _keeps_saying(last: Event, facts: Facts) -> bool:
    """A progress bar shows that its process was alive only if it went on: one early line may be all there was."""
    same = [e for e in facts.progress if e.signature == last.signature and e.rank == last.rank]
    counts = "step" in last.fields and ("total" in last.fields or last.signature == "progress/learned")
    return len(same) >= 2 and counts


def _all_wait(stuck: Stuck, facts: Facts) -> Incident:
    """Nobody is missing: the transport, a GPU, or a rank that nobody can see."""
    suspects = laggards(stuck, facts)
    told = [own.status for rank in suspects if (own := facts.ranks.get(rank)) and own.status]
    events = [event for event in told if event is not None]
    events += [call.event for call in sorted(stuck.calls, key=lambda call: call.event.event_id)]
    why = (
        _("every rank whose log is here waits; {ranks} had queued least: a suspicion, no proof").format(
            ranks=name_ranks(suspects)
        )
        if suspects
        else _("every rank whose log is here waits in the same collective: nobody is missing from it")
    )
    return Incident(
        "unknown_timeout",
        events,
        suspects if 0 < len(suspects) <= 2 and len(stuck.calls) > 2 else [],
        "all-wait",
        tier=2,
        status="undetermined",
        why=[why],
        confidence="low",
    )


# -- somebody lost a peer -----------------------------------------------------------------------------------------


def _of_lost_peers(facts: Facts) -> list[Incident]:
    victims = [rank for rank, own in facts.ranks.items() if own.victim]
    missing = [rank for rank in facts.expected if rank not in victims]
    over = [
        rank
        for rank in missing
        if (own := facts.ranks.get(rank)) and own.last_activity and own.last_activity.fields.get("activity") in _DONE
    ]
    if over and victims:
        said = [facts.ranks[rank].last_activity for rank in over]
        return [
            Incident(
                "uneven_inputs",
                [event for event in said if event is not None],
                sorted(over),
                "out-of-batches",
                phase="epoch_end",
                why=[_("{ranks} had finished while the others were still in a step").format(ranks=name_ranks(over))],
                confidence="medium",
            )
        ]
    # a rank that its launcher had to stop was still alive: it did not leave
    left = [rank for rank in missing if rank in facts.ranks and not facts.stopped_alive(rank)]
    left = [rank for rank in left if facts.ranks[rank].exit_code in {None, 0}] or left
    if len(left) == 1 or (left and len(left) < len(victims)):
        said = [facts.ranks[rank].last_said for rank in left]
        return [
            Incident(
                "unknown_exit",
                [event for event in said if event is not None] + facts.symptoms[:1],
                sorted(left),
                "left-without-a-word",
                tier=2,
                status="undetermined",
                why=[
                    _(
                        "the others lost their connection to a peer; {ranks}: no error, not stopped by the launcher, "
                        "the log just ends, so it left on its own"
                    ).format(ranks=name_ranks(left))
                ],
                confidence="low",
            )
        ]
    return [
        Incident(
            "unknown_exit",
            facts.symptoms[:3],
            [],
            "peer-lost",
            tier=2,
            status="undetermined",
            why=[_("ranks lost their connection to a peer, and no log says which peer went away or why")],
            confidence="low",
        )
    ]
