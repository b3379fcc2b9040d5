"""Groups failures into incidents: which are real, which were survived, which tell of the same thing."""

from __future__ import annotations

from collections import defaultdict

from logforensics.clock import SECOND
from logforensics.correlate.facts import Facts, distinct, exit_code_of, ranks_in
from logforensics.correlate.incident import OWN_FAILURE, Incident, before
from logforensics.correlate.survival import survived
from logforensics.language import _
from logforensics.model import Event

# The same fault on several ranks within this time is one incident (a bad config, a full disk), not a race.
_NO_FAILURE = {None, 0, -15, -2}  # exit codes of a process that ended well, or was told to end
_BELOW = 3  # lines
SAME_MOMENT_US = 15 * SECOND

# Failures that one rank notices in a peer; which of the two is the odd one the others tell.
_OF_PAIRS = {"collective_mismatch", "zero_mismatch"}

# What a bare exception is, by what the process was doing when it came.
_BY_ACTIVITY = {
    "data_loading": "dataloader",
    "checkpoint_save": "checkpoint_error",
    "checkpoint_load": "checkpoint_error",
    "download": "hub_download",
}


def category_of(event: Event) -> str:
    """Return an event's category; a bare exception's place in the code makes it more precise."""
    category = event.category or "user_exception"
    if category == "user_exception":
        if event.fields.get("nested"):  # the original traceback of a DataLoader worker
            return "dataloader"
        return _BY_ACTIVITY.get(event.fields.get("activity", ""), category)
    return category


def find_incidents(facts: Facts) -> tuple[list[Incident], list[Event]]:
    """Return the incidents among the failures, earliest first, and the failures that the run survived."""
    over = [event for event in facts.causes if survived(event, facts)]
    gone = {id(event) for event in over}
    alive = [event for event in facts.causes if id(event) not in gone]
    alive = [event for event in alive if not _passes_on(event, facts)]
    alive = _best_of_chains(alive, facts)
    incidents = [_incident(group) for group in _per_writer(alive)]
    for incident in incidents:
        _begin_of_decay(incident, facts)
    _attribute(incidents, facts)
    _stopped_from_outside(incidents, facts)
    merged = _merge_ranks(incidents)
    for incident in merged:
        _blame_peers(incident, facts)
        _outvoted(incident, facts)
        _named_by_all(incident, facts)
    merged.sort(key=lambda incident: incident.first.event_id)
    for incident in merged:
        incident.consequence_of = _consequence(incident, facts)
    return merged, over


def _begin_of_decay(incident: Incident, facts: Facts) -> None:
    """A loss scale that sank to its minimum: the useful line is where the unbroken series of overflows began."""
    if incident.category != "nan_loss":
        return
    first = incident.first
    lowered = [event for event in facts.events if "scale" in event.fields and event.event_id < first.event_id]
    start: Event | None = None
    scale = float("inf")
    for event in reversed(lowered):
        value = float(event.fields["scale"])
        if start is not None and value < scale:
            break
        start, scale = event, value
    if start is not None:
        incident.events.insert(0, start)
        incident.leading = start
        incident.why.append(_("the loss scale sank in every step from there on until it could sink no further"))


def _passes_on(event: Event, facts: Facts) -> bool:
    """An exception that only brings another process's home: the line right below it says whose."""
    return event.category == "user_exception" and any(
        pointer.kind == "exception" and pointer.source == event.source and 0 < pointer.line - event.end_line <= _BELOW
        for pointer in facts.pointers
    )


# -- one failure, told several times ----------------------------------------------------------------------------


def _specific(event: Event) -> tuple[int, int]:
    """How much a link of an exception chain tells: its own cause first, a connection's end last."""
    score = {"cause": 2, "either": 1}.get(event.role, 0)
    return (score + (category_of(event) != "user_exception"), -event.event_id)


def _best_of_chains(events: list[Event], facts: Facts) -> list[Event]:
    """Keep of each chain of exceptions the link that tells most; of equals the first."""
    raised = sorted(
        (
            e
            for e in (*events, *facts.symptoms, *facts.timeouts)
            if e.fields.get("raised") and not e.fields.get("error_file")
        ),
        key=lambda e: (e.source, e.offset),
    )
    open_chain: dict[tuple[str, int | None], list[Event]] = {}
    dropped: set[int] = set()
    for event in raised:
        key = (event.source, event.rank)
        chain = open_chain.get(key)
        if chain is not None:
            chain.append(event)
        elif event.fields.get("chained"):
            chain = open_chain[key] = [event]
        if chain is not None and not event.fields.get("chained"):
            best = max(chain, key=_specific)
            if event.role == "symptom" and event.kind == "collective":
                best = event  # a call that needs all ranks failed: what happened inside it is what that looked like
            # what tells of the same failure stays, as more evidence of it
            dropped.update(id(link) for link in chain if category_of(link) != category_of(best))
            del open_chain[key]
    return [event for event in events if id(event) not in dropped]


def _words(event: Event) -> str:
    return "".join("0" if char.isdigit() else char for char in event.message)[:200]


def _per_writer(events: list[Event]) -> list[list[Event]]:
    """Put together what tells of one failure: same writer, same category; a logged line and its traceback."""
    groups: dict[tuple[int, object, str], list[Event]] = {}
    for event in events:
        category = category_of(event)
        writer: object = event.rank if event.rank is not None else event.source
        key: tuple[int, object, str] = (event.attempt, writer, category)
        groups.setdefault(key, []).append(event)
    # a line without a rank that says the same as one with a rank, right beside it, is that rank's
    by_words: dict[tuple[int, str], list[Event]] = {}
    for key, group in groups.items():
        if group[0].rank is not None:
            by_words.setdefault((group[0].attempt, key[2]), group)
    result = []
    for key, group in groups.items():
        home = by_words.get((group[0].attempt, key[2]))
        if group[0].rank is None and home is not None and home is not group and _tells_the_same(group, home):
            home.extend(group)
            home.sort(key=lambda event: event.event_id)
        else:
            result.append(group)
    return result


def _tells_the_same(unranked: list[Event], ranked: list[Event]) -> bool:
    """Whether lines without a rank repeat a rank's failure: the same source, the same words or kind of failure."""
    sources = {event.source for event in ranked}
    return all(event.source in sources or event.signature in {e.signature for e in ranked} for event in unranked)


def _incident(events: list[Event]) -> Incident:
    first = events[0]
    ranks = distinct(event.rank for event in events)
    return Incident(
        category=category_of(first),
        events=events,
        ranks=ranks,
        rule=OWN_FAILURE,
        tier=0 if any(event.role == "cause" for event in events) else 1,
        scope=first.fields.get("scope", "rank") if not ranks or first.fields.get("scope") == "peers" else "rank",
    )


# -- whose is it ------------------------------------------------------------------------------------------------


def failed_ranks(facts: Facts) -> list[int]:
    """Return the ranks that a launcher saw fail by themselves, in the order in which it reports them."""
    ranks: list[int] = []
    for event in facts.exits:
        code = exit_code_of(event)
        if event.rank is not None and code not in _NO_FAILURE and event.rank not in ranks:
            ranks.append(event.rank)
    return ranks


def _attribute(incidents: list[Incident], facts: Facts) -> None:
    """Give a failure that names no rank to the rank that the launcher saw fail, when only one can be meant."""
    for incident in incidents:
        if not incident.ranks and incident.scope in {"rank", "node"}:
            incident.ranks = _everyone(incident, facts) or _of_nodes(incident, facts)
    nameless = [incident for incident in incidents if not incident.ranks and incident.scope == "rank"]
    if not nameless:
        return
    named = {rank for incident in incidents for rank in incident.ranks}
    failed = failed_ranks(facts)
    open_ranks = [rank for rank in failed if rank not in named and not facts.ranks[rank].victim]
    others = [
        rank for rank in facts.expected if rank not in named and not (rank in facts.ranks and facts.ranks[rank].victim)
    ]
    for incident in nameless:
        times = _raised(incident.events)
        if len(open_ranks) == 1 or (open_ranks and times <= 1):
            incident.ranks = [open_ranks[0]]
            incident.why.append(_("the failure names no rank; it is given to the one that the launcher saw fail first"))
        elif open_ranks and times >= len(open_ranks):
            incident.ranks = sorted(open_ranks)
        elif len(others) == 1 and len(facts.expected) > 1 and times <= 1 and incident.tier == 0:
            incident.ranks = others
            incident.why.append(_("the failure names no rank; every other rank shows that it lost a peer"))


def _raised(events: list[Event]) -> int:
    """How many processes tell of it: each prints its traceback once, links of a chain aside, or one line."""
    raised = [event for event in events if event.fields.get("raised") and not event.fields.get("chained")]
    return sum(event.repeats for event in raised or [e for e in events if e.signature == events[0].signature])


def _everyone(incident: Incident, facts: Facts) -> list[int]:
    """As many tracebacks as there are processes: it happened on all of them."""
    told = [event for event in (*facts.exits, *facts.teardowns) if event.pid is not None]
    one_launcher = len({event.source for event in told}) == 1 and told[0].source not in facts.identity.mixed
    size = facts.world_size or (len({event.pid for event in told}) if one_launcher else 0)
    return list(range(size)) if size > 1 and _raised(incident.events) == size else []


def _of_nodes(incident: Incident, facts: Facts) -> list[int]:
    """Failures that name their host only: its ranks, as far as they show nothing else."""
    by_node: dict[str, list[Event]] = defaultdict(list)
    for event in incident.events:
        if event.node is not None:
            by_node[event.node].append(event)
    found: set[int] = set()
    for node, events in by_node.items():
        members = facts.identity.node_ranks.get(node, [])
        if incident.scope == "node":
            incident.confidence = "medium"
            found.update(members)
            continue
        spared = [rank for rank in members if not (rank in facts.ranks and facts.ranks[rank].victim)]
        times = _raised(events)
        if members and times >= len(members):
            found.update(range(members[0], members[0] + times) if members[0] % times == 0 else members)
            continue
        incident.confidence = "medium"
        if (times > 1 and times * 2 >= len(spared)) or (times == 1 and len(spared) == 1):
            found.update(spared)
    return sorted(found)


def _merge_ranks(incidents: list[Incident]) -> list[Incident]:
    """Make one incident of the same fault on several ranks at the same moment."""
    merged: list[Incident] = []
    for incident in sorted(incidents, key=lambda item: item.first.event_id):
        home = next((other for other in merged if _same_fault(other, incident)), None)
        if home is None:
            merged.append(incident)
            continue
        home.events = sorted([*home.events, *incident.events], key=lambda event: event.event_id)
        home.ranks = sorted({*home.ranks, *incident.ranks})
        home.tier = min(home.tier, incident.tier)
    return merged


def _stopped_from_outside(incidents: list[Incident], facts: Facts) -> None:
    """Ctrl-C reaches the launcher and all ranks: it is nobody's doing, whichever rank printed it first."""
    stops = [incident for incident in incidents if incident.category == "interrupted"]
    told = any(event.fields.get("scope") == "run" for incident in stops for event in incident.events)
    ranks = {rank for incident in stops for rank in incident.ranks}
    everyone = len(ranks) > 1 and ranks == set(facts.ranks)
    if told or everyone:
        for incident in stops:
            incident.scope, incident.ranks = "run", []


def _named_by_all(incident: Incident, facts: Facts) -> None:
    """An exception that every rank raises, and that says on which ranks it really happened."""
    told = [*incident.events, *(event for event in facts.pointers if event.category == incident.category)]
    named = {rank for event in told for rank in ranks_in(event.fields.get("ranks", ""))}
    if incident.rule == OWN_FAILURE and named and named < set(incident.ranks):
        incident.ranks = sorted(named)
        incident.why.append(_("every rank raised it; the message names the ranks on which it happened"))


def _outvoted(incident: Incident, facts: Facts) -> None:
    """Each rank that found a mismatch names a peer: the rank that is in every such pair is the odd one."""
    pairs = [
        {event.rank, event.fields["peer_rank"]}
        for event in incident.events
        if event.rank is not None and "peer_rank" in event.fields
    ]
    if incident.category not in _OF_PAIRS or not pairs:
        return
    odd = set.intersection(*pairs)
    if len(odd) == 2 and incident.category == "zero_mismatch" and len(facts.expected) > 2:
        return  # every rank compares itself with rank 0, and the others found nothing to complain of
    if len(odd) == 1:
        incident.ranks = sorted(odd)
        incident.why.append(_("every rank that noticed the mismatch disagrees with rank {rank}").format(rank=min(odd)))
    elif len(odd) == 2:
        incident.ranks = sorted(odd)
        incident.confidence = "medium"
        incident.why.append(_("two ranks disagree, and nothing says which of them is wrong"))


def _blame_peers(incident: Incident, facts: Facts) -> None:
    """Two ranks disagree and one of them noticed: with two ranks it is both, with more the other is not known."""
    if incident.scope != "peers":
        return
    incident.ranks = list(facts.expected) if len(facts.expected) == 2 else []
    incident.confidence = "medium"
    incident.why.append(_("the rank that aborts is only the one that noticed; its peer may be the one that differs"))


def _same_fault(one: Incident, other: Incident) -> bool:
    if one.category != other.category or one.scope != other.scope:
        return False
    first, second = one.first, other.first
    if first.attempt != second.attempt or one.tier != other.tier:
        return False  # what may be a consequence does not make a cause wider
    if one.category in {"user_exception", "unknown_exit"} and _words(first) != _words(second):
        return False
    if first.time_us is None or second.time_us is None:
        return True
    distance = abs(first.time_us - second.time_us)
    return distance <= SAME_MOMENT_US + first.time_error_us + second.time_error_us


# -- cause or consequence ---------------------------------------------------------------------------------------


def _consequence(incident: Incident, facts: Facts) -> str | None:
    """Return why an incident can only be a consequence; None when it may be the cause."""
    first = incident.first
    if incident.category == "interrupted" and incident.scope == "run":
        failed = [event for event in facts.exits if exit_code_of(event) not in _NO_FAILURE]
        if any(before(event, first) is True for event in (*facts.timeouts, *failed)):
            return _("the job was cancelled after some of its processes had failed")
    if first.stream in {"kernel", "scheduler"}:
        return None
    for rank in incident.ranks:
        own = facts.ranks.get(rank)
        earlier = [e for e in (own.timeouts + own.lost_peer if own else []) if before(e, first) is True]
        if earlier and not first.fields.get("chained"):
            return _("rank {rank} had already lost the others by then").format(rank=rank)
    timeout = facts.first_timeout
    if timeout is None or not incident.ranks:
        return None
    if before(timeout, first) is True and incident.category in {
        "interrupted",
        "user_exception",
        "unknown_exit",
    }:
        return _("it came after the timeout, while the run was being taken down")
    return None
