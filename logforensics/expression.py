"""Finds, in a signature's pattern, the literal texts of which every match must hold one.

The scanner looks for these texts in the raw bytes, before prefixes are peeled; a line that holds one is
matched with the real pattern. Plain texts and not the patterns themselves, because all of them together
then cost one pass at memory speed, and because a fault was met in Hyperscan 5.4 with patterns: a gap
followed by a class of four characters (``\\[.+\\][ abc]exits``) misses lines that it should report.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]  # no public name for the parsed form
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

PATTERN_FLAGS = re.VERBOSE | re.ASCII
# More alternatives than these are not spelled out; a text this long is as rare as any longer one.
_MOST_VARIANTS = 12
_ENOUGH = 20
# A shorter text would hit ordinary lines all the time; in a window of a log that matters less.
SHORTEST, SHORTEST_IN_WINDOW = 4, 2
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)

# What healthy logs are full of: a text that occurs here finds nothing rare, so another one is preferred.
_ORDINARY = (
    "2026-11-30 19:11:05,469 INFO [rank 0] train: step 1 loss 17.6372 lr 1.00e-04 grad_norm 0.1 tok/s 9 epoch 1 iter "
    "[2026-11-30 19:11:05,469] [INFO] [logging.py:96:log_dist] [Rank 0] step=250, skipped=3, lr=[4.8e-05], mom=[0.9] "
    "node-1:20001:20041 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read comm 0x7f rank 0 nranks 8 cudaDev "
    "{'loss': 1.3, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1} 33%|###  | 1/3 [00:00<00:00, 4.94it/s] "
    " iteration      100/  500000 | consumed samples: | elapsed time per iteration (ms): | lm loss: "
    "[rank0]:[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 3] collective "
    'Traceback (most recent call last): File "/x.py", line 3, in main RuntimeError: ValueError: Exception: '
    "WARNING warning: UserWarning: torch.distributed. torch.cuda. model data training evaluation checkpoint process "
    "waiting for started finished with error failed: returned Loaded Generating tensor GPU memory usage version "
)


def required_texts(pattern: str, shortest: int = SHORTEST) -> tuple[str, ...]:
    """Return texts of which every match of a verbose pattern holds at least one on its first line.

    A lone ``\\s`` is taken for a blank. Raises re.error when the pattern is not valid, ValueError when no text of
    ``shortest`` characters must occur.
    """
    items = _first_line(list(sre_parser.parse(pattern, PATTERN_FLAGS)))
    best = _best(_candidates(items, shortest), shortest)
    if best is None:
        raise ValueError(f"no text of {shortest} characters must occur in every match; the scanner needs one")
    return tuple(sorted(best))


def _score(texts: frozenset[str]) -> tuple[int, int, int]:
    """The rarer the better: the worst of the alternatives decides, then how few there are."""
    worst = min(_rarity(text) for text in texts)
    return (worst, -len(texts), min(len(text) for text in texts))


def _rarity(text: str) -> int:
    length = min(len(text.strip()), _ENOUGH)
    return min(length, SHORTEST) if text.strip() in _ORDINARY else length


def _best(candidates: list[frozenset[str]], shortest: int) -> frozenset[str] | None:
    usable = [texts for texts in candidates if min(len(text.strip()) for text in texts) >= shortest]
    return max(usable, key=_score, default=None)


def _first_line(items: list[Any]) -> list[Any]:
    """Cut at the first element that crosses a line end: the scanner looks at one line."""
    kept: list[Any] = []
    for op, value in items:
        if op is sre.SUBPATTERN and value[1] & re.DOTALL:
            break
        if op is sre.LITERAL and value == 10:
            break
        if op is sre.SUBPATTERN and _crosses(value[3]):
            kept.extend(_first_line(list(value[3])))
            break
        if op in _REPEATS and _crosses(value[2]):
            break
        if op is sre.BRANCH and any(_crosses(branch) for branch in value[1]):
            kept.append((sre.BRANCH, (value[0], [_first_line(list(branch)) for branch in value[1]])))
            break
        kept.append((op, value))
    return kept


def _crosses(items: Any) -> bool:
    for op, value in items:
        if op is sre.LITERAL and value == 10:
            return True
        if op is sre.SUBPATTERN and (value[1] & re.DOTALL or _crosses(value[3])):
            return True
        if op in _REPEATS and _crosses(value[2]):
            return True
        if op is sre.BRANCH and any(_crosses(branch) for branch in value[1]):
            return True
    return False


def _candidates(items: list[Any], shortest: int) -> list[frozenset[str]]:
    """Return sets of texts; for each set, every match of the sequence holds one of its texts."""
    found: list[frozenset[str]] = []
    run: set[str] = {""}

    def flush() -> None:
        if run != {""}:
            found.append(frozenset(run))
        run.clear()
        run.add("")

    queue = list(items)
    while queue:
        op, value = queue.pop(0)
        if op is sre.SUBPATTERN and not value[1] & re.IGNORECASE:
            queue[:0] = list(value[3])
            continue
        variants = _variants([(op, value)])
        if variants is not None and len(variants) * len(run) <= _MOST_VARIANTS:
            extended = {head + tail for head in run for tail in variants}
            run.clear()
            run.update(extended)
            continue
        flush()
        if op is sre.BRANCH:
            parts = [_best(_candidates(list(branch), shortest), shortest) for branch in value[1]]
            if all(part is not None for part in parts):
                found.append(frozenset().union(*(part for part in parts if part is not None)))
        elif op in _REPEATS and value[0] >= 1:
            found.extend(_candidates(list(value[2]), shortest))
        elif op is sre.ATOMIC_GROUP:
            found.extend(_candidates(list(value), shortest))
    flush()
    return found


def _variants(items: Any) -> set[str] | None:
    """Return every text that a sequence can be, when these are few; None when they are not."""
    texts = {""}
    for op, value in items:
        if op is sre.LITERAL:
            options: set[str] | None = {chr(value)}
        elif op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            options = {""}
        elif op is sre.IN:
            options = _members(value)
        elif op is sre.SUBPATTERN:
            options = None if value[1] & re.IGNORECASE else _variants(value[3])
        elif op is sre.BRANCH:
            options = set()
            for branch in value[1]:
                own = _variants(branch)
                options = None if own is None or options is None else options | own
        elif op in _REPEATS and value[1] == 1 and value[0] == 0:
            own = _variants(value[2])
            options = None if own is None else own | {""}
        else:
            options = None
        if options is None or len(options) * len(texts) > _MOST_VARIANTS:
            return None
        texts = {head + tail for head in texts for tail in options}
    return texts


def _members(value: Any) -> set[str] | None:
    if len(value) == 1 and value[0] == (sre.CATEGORY, sre.CATEGORY_SPACE):
        return {" "}
    if len(value) <= 3 and all(op is sre.LITERAL for op, _ in value):
        return {chr(code) for _, code in value}
    return None


_ANY_CHARACTER = frozenset(chr(code) for code in range(128))


@lru_cache(maxsize=256)
def first_characters(pattern: str) -> frozenset[str]:
    """Return the ASCII characters that a match of ``pattern`` can start with (all of them when unknown).

    Lets a caller with many patterns try only those that can fit a text's first character.
    """
    first, _ = _first(list(sre_parser.parse(pattern, PATTERN_FLAGS)))
    return first


def _first(items: list[Any]) -> tuple[frozenset[str], bool]:
    """Return the possible first characters of a sequence and whether it can be empty."""
    found: frozenset[str] = frozenset()
    for op, value in items:
        here, empty = _first_of(op, value)
        found |= here
        if not empty:
            return found, False
    return found, True


def _first_of(op: Any, value: Any) -> tuple[frozenset[str], bool]:
    if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return frozenset(), True
    if op is sre.LITERAL:
        return frozenset(chr(value)), False
    if op is sre.SUBPATTERN:
        return _first(list(value[3]))
    if op is sre.BRANCH:
        parts = [_first(list(branch)) for branch in value[1]]
        return frozenset().union(*(part for part, _ in parts)), any(empty for _, empty in parts)
    if op in _REPEATS:
        first, empty = _first(list(value[2]))
        return first, empty or value[0] == 0
    if op is sre.IN:
        return frozenset(char for char in _ANY_CHARACTER if _in_set(char, value)), False
    return _ANY_CHARACTER, False


_CATEGORIES = {
    sre.CATEGORY_DIGIT: (str.isdigit, True),
    sre.CATEGORY_NOT_DIGIT: (str.isdigit, False),
    sre.CATEGORY_SPACE: (str.isspace, True),
    sre.CATEGORY_NOT_SPACE: (str.isspace, False),
    sre.CATEGORY_WORD: (lambda char: char.isalnum() or char == "_", True),
    sre.CATEGORY_NOT_WORD: (lambda char: char.isalnum() or char == "_", False),
}


def _in_set(char: str, value: Any) -> bool:
    negated = False
    inside = False
    for op, item in value:
        if op is sre.NEGATE:
            negated = True
        elif op is sre.LITERAL:
            inside = inside or ord(char) == item
        elif op is sre.RANGE:
            inside = inside or item[0] <= ord(char) <= item[1]
        elif op is sre.CATEGORY:
            test, wanted = _CATEGORIES[item]
            inside = inside or bool(test(char)) is wanted
    return inside is not negated
