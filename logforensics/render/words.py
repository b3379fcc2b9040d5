"""What people read for each word of the closed vocabularies, and the signs that stand for them in the page.

A sign is never told apart by colour alone: a reader who sees none, or prints in grey, still knows it.
"""

from __future__ import annotations

from logforensics.language import _, later

STATUS_WORDS = {
    "diagnosed": later("Diagnosed"),
    "undetermined": later("Not established"),
    "no_failure": later("No failure"),
}
PHASE_WORDS = {
    "launch": later("at launch"),
    "rendezvous": later("while the ranks were finding each other"),
    "first_collective": later("at the first collective"),
    "mid_training": later("in the middle of training"),
    "epoch_end": later("at the end of an epoch"),
    "checkpoint": later("around a checkpoint"),
    "shutdown": later("at shutdown"),
    "unknown": later("phase not established"),
}
CONFIDENCE_WORDS = {
    "high": later("the logs show it"),
    "medium": later("the logs point to it; check the evidence"),
    "low": later("a lead, not an answer"),
}
FATE_WORDS = {
    "origin": later("failed first"),
    "timed_out": later("waited until the timeout"),
    "peer_lost": later("lost a peer"),
    "torn_down": later("stopped by the launcher"),
    "silent": later("fell silent"),
    "finished": later("finished"),
    "not_started": later("never started"),
    "unknown": later("not established"),
}
ROLE_WORDS = {
    "cause": later("cause"),
    "either": later("cause or consequence"),
    "symptom": later("consequence"),
    "pointer": later("says who or where"),
    "teardown": later("being stopped"),
    "progress": later("sign of life"),
    "context": later("fact"),
    "noise": later("harmless"),
}
ROLE_SIGNS = {
    "cause": "◆",
    "either": "▲",
    "symptom": "●",
    "pointer": "►",
    "teardown": "■",
    "progress": "|",
    "context": "▪",
    "noise": "·",
}
FATE_SIGNS = {
    "origin": "✕",
    "timed_out": "W",
    "peer_lost": "L",
    "torn_down": "S",
    "silent": "…",
    "finished": "✓",
    "not_started": "–",
    "unknown": "?",
}


def fate_words(suspected: bool) -> dict[str, str]:
    """Return what each fate is called; ``suspected``: nothing is established, so the origin is a suspect."""
    words = {fate: _(text) for fate, text in FATE_WORDS.items()}
    if suspected:
        words["origin"] = _("the suspect")
    return words
