"""What the logs do not show, and what would settle it."""

from __future__ import annotations

from logforensics.correlate.facts import Facts
from logforensics.correlate.incident import Incident
from logforensics.language import _, name_ranks
from logforensics.reader import Reading
from logforensics.sources import Sources

_MOST_NOTES = 12


def what_is_missing(facts: Facts, incident: Incident, sources: Sources, readings: list[Reading]) -> list[str]:
    """Return one line for each gap: ranks without a log, files that were skipped, tools that were off."""
    lines: list[str] = []
    absent = [rank for rank in facts.expected if rank not in facts.ranks]
    if absent and incident.category != "no_failure":
        lines.append(
            _("no log of {ranks} (the run has {size} ranks)").format(ranks=name_ranks(absent), size=facts.world_size)
            if facts.world_size
            else _("no log of {ranks}, which exist since higher ones do").format(ranks=name_ranks(absent))
        )
    if incident.category == "unknown_exit" and incident.rule == "killed":
        lines.append(
            _("who sent SIGKILL: look at `dmesg -T | grep -i -e oom -e killed` and the scheduler's record of that node")
        )
    if incident.status == "undetermined" and incident.category == "unknown_timeout":
        lines.append(
            _(
                "what the missing rank was doing: run `py-spy dump --pid <pid>` on it while it hangs, or set "
                "TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE in older torch) and add the dumps"
            )
            if not facts.recorded
            else _("what the missing rank was doing: run `py-spy dump --pid <pid>` on it while it hangs")
        )
    unseen = sorted({rank for state in facts.recorded for rank in state.unseen})
    if unseen:
        lines.append(_("no flight recorder dump of {ranks}").format(ranks=name_ranks(unseen)))
    if incident.status == "undetermined" and incident.category == "unknown_exit" and incident.ranks:
        lines.append(
            _("why {ranks} left: the exit code, and a log line where the loop ends").format(
                ranks=name_ranks(incident.ranks)
            )
        )
    if facts.timeouts and not facts.ranks:
        lines.append(
            _("which rank wrote which line: log each rank to a file of its own (torchrun --redirects 3 --log-dir DIR)")
        )
    if facts.identity.conflicts:
        lines.append(_("the logs contradict each other: {how}").format(how="; ".join(facts.identity.conflicts[:3])))
    empty = [reading.source.name for reading in readings if not reading.events and reading.source.size == 0]
    if empty and len(empty) == len(readings):
        lines.append(_("every log file is empty"))
    notes = [f"{note.source}: {note.what}" for note in sources.notes]
    lines += notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        lines.append(_("{count} more files were skipped or cut (see --json)").format(count=len(notes) - _MOST_NOTES))
    return lines
