"""Required texts: whatever a pattern matches holds one of them, so a scan for the texts misses nothing."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from logforensics.expression import SHORTEST, SHORTEST_IN_WINDOW, first_characters, required_texts
from logforensics.prefixes import known_prefixes
from logforensics.signatures import Signature, shipped_signatures

SCANNED = [signature for signature in shipped_signatures().signatures if not signature.fallback]


# A pattern and a text that it matches, of every construct that signatures use: literals, classes, groups, alternatives,
# repeats, look-around, case.
Pair = tuple[str, str]
WORDS = ["error", "disk", "rank", "NCCL", "gone", "ab", "x", "watchdog", "of", "volume"]
ATOMS: list[Pair] = [
    *((word, word) for word in WORDS),
    *((word, word) for word in WORDS),
    (r"\d+", "17"),
    (r"\w+", "some_word"),
    (r"\s", " "),
    ("[ab]", "b"),
    ("[Dd]isk", "Disk"),
    ("[a-z]", "q"),
    ("[^ab]", "-"),
    (r"\.", "."),
    (r"\[", "["),
    (r"\S*", ""),
    (".{0,9}", "..."),
    ("(?!zz)", ""),
    ("(?:)", ""),
    ("^", ""),
    ("$", ""),
]


def sequence(parts: list[Pair]) -> Pair:
    return "".join(pattern for pattern, _ in parts), "".join(text for _, text in parts)


def choice(parts: list[Pair], chosen: int) -> Pair:
    return "(?:" + "|".join(pattern for pattern, _ in parts) + ")", parts[chosen % len(parts)][1]


def repeat(part: Pair, how: tuple[str, int]) -> Pair:
    return f"(?:{part[0]}){how[0]}", part[1] * how[1]


REPEATS = [
    ("?", 0),
    ("?", 1),
    ("*", 0),
    ("*", 2),
    ("+", 1),
    ("+?", 2),
    ("{0,2}", 2),
    ("{2}", 2),
    ("??", 1),
    ("{1,3}", 3),
]
WRAPS = ["({})", "(?>{})", "(?:{})", "(?={0}){0}", "(?i:{})"]


def wrap(part: Pair, how: str) -> Pair:
    return how.format(part[0]), part[1].swapcase() if how == "(?i:{})" else part[1]


def grown(element: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Return what can be made of up to three elements in a row."""
    row = st.lists(element, min_size=1, max_size=3).map(sequence)
    chosen = st.builds(choice, st.lists(row, min_size=2, max_size=3), st.integers(0, 2))
    repeated = st.builds(repeat, st.one_of(row, chosen), st.sampled_from(REPEATS))
    return st.one_of(element, chosen, repeated, st.builds(wrap, row, st.sampled_from(WRAPS)))


PAIRS = st.lists(grown(grown(st.sampled_from(ATOMS))), min_size=1, max_size=5).map(sequence)


def matched(pair: Pair) -> Pair:
    """Return the pair if it is one: look-ahead and ends may forbid what was put together."""
    assume(regex.fullmatch(pair[0], pair[1], regex.VERBOSE | regex.ASCII))
    return pair


@given(PAIRS)
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_every_match_of_a_pattern_holds_a_required_text(pair: Pair):
    pattern, text = matched(pair)
    try:
        texts = required_texts(pattern, SHORTEST_IN_WINDOW)
    except ValueError:
        return

    assert any(needed in text for needed in texts)
    assert all(len(needed.strip()) >= SHORTEST_IN_WINDOW for needed in texts)


@pytest.mark.parametrize("signature", SCANNED, ids=lambda signature: signature.name)
def test_the_samples_of_a_signature_hold_its_texts_on_the_line_that_is_scanned(signature: Signature):
    shortest = SHORTEST if signature.full_scan else SHORTEST_IN_WINDOW

    assert signature.scan == required_texts(signature.regex, shortest)
    for sample in signature.samples:
        assert any(text in line for line in sample.line.split("\n") for text in signature.scan)


@pytest.mark.parametrize(("pattern", "texts"), [
    (r"^disk\sfull", {"disk full"}),
    (r"^(?P<exc>\w+):\sdisk\sfull\son\s(?P<path>\S+)", {": disk full on "}),
    (r"(?:disk|volume)\sgone", {"disk gone", "volume gone"}),
    (r"\d+(?:disk|volume\s\d+)\d", {"disk", "volume "}),
    (r"volumes?\sgone", {"volume gone", "volumes gone"}),
    (r"[Vv]olume\sgone", {"Volume gone", "volume gone"}),
    (r"volume\s(?:is\s)?gone", {"volume gone", "volume is gone"}),
    (r"(?:volume\s\d+,\s)+gone\sfor\sgood", {"gone for good"}),
    (r"(?:volume\s\d+,\s)*gone", {"gone"}),
    (r"(?:volume){2,3}", {"volume"}),
    (r"(?i:volume)\sgone", {" gone"}),
    (r"gone:\n\s+volume\s/vol/7", {"gone:"}),  # a scan looks at one line
    (r"gone(?:\n\s+volume\s/vol/7)?", {"gone"}),
    (r"(?:gone\n|lost\n)volume", {"gone", "lost"}),
    (r"(?s:gone.volume)-lost|gone-volume-lost", None),
    (r"(?!volume\sback)gone", {"gone"}),
    (r"(?<=volume\s)gone", {"gone"}),
    (r"gone \s of \s volume  # a comment", {"gone of volume"}),
    # the texts of ordinary lines say little: the rarer one is taken
    (r"^Traceback\s\(most\srecent\d+volume_7", {"volume_7"}),
    (r"rank\s\d+:\sgone", {": gone"}),
])  # fmt: skip
def test_the_texts_of_a_pattern(pattern: str, texts: set[str] | None):
    if texts is None:
        with pytest.raises(ValueError, match="no text of 4 characters"):
            required_texts(pattern)
    else:
        assert set(required_texts(pattern)) == texts


@pytest.mark.parametrize(
    "pattern",
    [r"^\w+:\s\d+$", r"(?:disk\sfull|\d+)", r"^\S+\s\S+", r"a|disk\sfull", r"(?:disk\sfull)?", r"abc", r"(?i:volume)"],
)
def test_a_pattern_without_any_text_that_must_be_there_is_refused(pattern: str):
    with pytest.raises(ValueError, match="no text of 4 characters must occur"):
        required_texts(pattern)


def test_in_a_window_shorter_texts_will_do():
    assert required_texts(r"^ab\d+", SHORTEST_IN_WINDOW) == ("ab",)


@pytest.mark.parametrize("pattern", ["(", "[a", "(?P<a>x)(?P<a>y)", "*"])
def test_what_is_no_pattern_is_an_error_of_re(pattern: str):
    with pytest.raises(re.error):
        required_texts(pattern)


def test_alternatives_without_end_are_not_spelled_out():
    many = required_texts(r"(?:a|b|c|d)(?:a|b|c|d)(?:a|b|c|d)\sis\sgone")

    assert len(many) <= 12


# --- first characters -----------------------------------------------------------------------------------------


@given(PAIRS)
@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_match_starts_with_one_of_the_first_characters(pair: Pair):
    assume("(?i:" not in pair[0])
    pattern, text = matched(pair)

    assert not text or text[0] in first_characters(pattern)


@pytest.mark.parametrize("prefix", known_prefixes(), ids=lambda prefix: prefix.id)
def test_a_prefix_starts_with_one_of_its_first_characters(prefix):
    first = first_characters(prefix.pattern)

    assert all(sample["line"][0] in first for sample in prefix.samples)
    assert len(first) < 128  # else every line would be tried


@pytest.mark.parametrize(("pattern", "first"), [
    ("ab", "a"), ("a?b", "ab"), ("(?:a|b)c", "abc"[:2]), ("[a-c]x", "abc"), ("(?!a)b", "b"), (r"\d", "0123456789"),
    (r"(?P<rank>a)*b", "ab"), (r"\s?x", "x \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"),
])  # fmt: skip
def test_the_first_characters_of_a_pattern(pattern: str, first: str):
    assert first_characters(pattern) == set(first)
