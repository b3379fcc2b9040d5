"""Turns a signature's pattern into the expression that the byte scanner looks for.

The scanner (Hyperscan) works on raw bytes: before prefixes are peeled, without captures, look-arounds or
anchors, and it reports *every* end of a match. So its expression is a deliberate superset of the pattern:
anchors and look-arounds are dropped, and what trails (``.*``, ``\\d+``) is cut to its shortest form, so
that one line gives one report instead of one for each character. Whatever the scanner reports is matched
again with the real pattern; whatever the real pattern matches, the scanner reports.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]  # no public name for the parsed form
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

PATTERN_FLAGS = re.VERBOSE | re.ASCII
_UNLIMITED = sre.MAXREPEAT
_MOST_COUNTED = 4
_ENOUGH_LITERAL = 32

# No form may match a line end: the scanner sees a whole file, a record is one line of it.
_CATEGORY = {
    sre.CATEGORY_DIGIT: rb"\d",
    sre.CATEGORY_SPACE: rb" \t",
    sre.CATEGORY_WORD: rb"\w",
}
_NEGATIVE_CATEGORY = {
    sre.CATEGORY_NOT_DIGIT: rb"[^\d\n]",
    sre.CATEGORY_NOT_SPACE: rb"\S",
    sre.CATEGORY_NOT_WORD: rb"[^\w\n]",
}


def scan_expression(pattern: str) -> bytes:
    """Return the byte expression for a verbose pattern; it matches wherever the pattern does.

    Raises re.error when the pattern is not valid, ValueError when nothing is left to look for.
    """
    parsed = sre_parser.parse(pattern, PATTERN_FLAGS)
    items = _first_line(list(parsed))
    expression = _sequence(_enough(_best_stretch(_trim_start(_trim_end(_flatten_end(items))))))
    if not re.search(rb"[^\s\\().*+?|\[\]{}^$dwsDWS:]", expression):
        raise ValueError("the pattern has no literal text to look for")
    return expression


def _first_line(items: list[Any]) -> list[Any]:
    """Cut at the first element that must cross a line end: the scanner looks for one line."""
    kept: list[Any] = []
    for op, value in items:
        if op is sre.LITERAL and value == 10:
            break
        if op is sre.SUBPATTERN and value[1] & re.DOTALL:
            break
        if op is sre.SUBPATTERN and _has_newline(value[3]):
            kept.extend(_first_line(list(value[3])))
            break
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and _has_newline(value[2]):
            break
        if op is sre.BRANCH and any(_has_newline(branch) for branch in value[1]):
            kept.append((sre.BRANCH, (value[0], [_first_line(list(branch)) for branch in value[1]])))
            break
        kept.append((op, value))
    return kept


def _has_newline(items: Any) -> bool:
    for op, value in items:
        if op is sre.LITERAL and value == 10:
            return True
        if op is sre.SUBPATTERN and _has_newline(value[3]):
            return True
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and _has_newline(value[2]):
            return True
        if op is sre.BRANCH and any(_has_newline(branch) for branch in value[1]):
            return True
    return False


def _flatten_end(items: list[Any]) -> list[Any]:
    """Open the groups at the end, so that what trails inside them can be trimmed as well."""
    while items and items[-1][0] is sre.SUBPATTERN and not items[-1][1][1] and not items[-1][1][2]:
        items = items[:-1] + list(items[-1][1][3])
    return items


def _trim_end(items: list[Any]) -> list[Any]:
    """Drop what may be absent at the end and cut the last repetition to its minimum."""
    items = list(items)
    while items:
        op, value = items[-1]
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            items.pop()
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, _high, body = value
            if low == 0 or _only_space(body):
                items.pop()
            else:
                items[-1] = (sre.MAX_REPEAT, (low, low, body))
                break
        elif op is sre.SUBPATTERN and not value[1] and not value[2]:
            items = items[:-1] + list(value[3])
        elif _only_space([items[-1]]):
            items.pop()
        else:
            break
    return items


def _trim_start(items: list[Any]) -> list[Any]:
    """Drop what may be absent at the start and leading runs of a class: the literal behind is what is rare."""
    items = list(items)
    while len(items) > 1:
        op, value = items[0]
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            items.pop(0)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, _high, body = value
            if low != 0 and not _class_only(body):
                break
            items.pop(0)
        elif op is sre.SUBPATTERN and _first(list(value[3]))[1]:
            items.pop(0)  # a group that may be empty
        elif op is sre.SUBPATTERN and not value[1] and not value[2] and not _is_branch(value[3]):
            items = list(value[3]) + items[1:]
        elif op in (sre.IN, sre.ANY, sre.NOT_LITERAL) or _only_space([items[0]]):
            items.pop(0)
        else:
            break
    return items


def _best_stretch(items: list[Any]) -> list[Any]:
    """Split at gaps (``.*``, ``[^"]+``) and keep the stretch with most literal text.

    Beside being faster, this keeps clear of a fault in Hyperscan 5.4: ``\\[.+\\][ abcd]exits`` (a gap, then a
    class of four or five characters before a literal) misses lines that it should report.
    """
    stretches: list[list[Any]] = [[]]
    for item in items:
        if _is_gap(*item):
            stretches.append([])
        else:
            stretches[-1].append(item)
    best = max(stretches, key=_literal_count)
    return _trim_start(_trim_end(_flatten_end(best)))


def _is_gap(op: Any, value: Any) -> bool:
    if op is sre.SUBPATTERN and not value[1] and not value[2] and len(value[3]) == 1:
        return _is_gap(*value[3][0])
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        _low, high, body = value
        return (high is _UNLIMITED or high > _MOST_COUNTED) and _class_only(body) and _is_broad(body)
    return False


def _is_broad(body: Any) -> bool:
    """Whether a class takes nearly every character: ``.``, ``\\S``, ``[^"]`` - and not ``\\d`` or ``[\\w.]``."""
    for op, value in body:
        if op in (sre.ANY, sre.NOT_LITERAL):
            return True
        if op is sre.IN and (value[0][0] is sre.NEGATE or any(v in _NEGATIVE_CATEGORY for _o, v in value)):
            return True
        if op is sre.SUBPATTERN and _is_broad(value[3]):
            return True
    return False


def _literal_count(items: Any) -> int:
    """How many literal characters every match of a sequence has at least."""
    count = 0
    for op, value in items:
        if op is sre.LITERAL:
            count += 1
        elif op is sre.SUBPATTERN:
            count += _literal_count(value[3])
        elif op is sre.BRANCH:
            count += min(_literal_count(branch) for branch in value[1])
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            count += value[0] * _literal_count(value[2]) if value[0] < 100 else 0
    return count


def _enough(items: list[Any]) -> list[Any]:
    """Cut what follows once there is plenty of literal text: it would cost compile time and filter nothing more."""
    literal = 0
    for place, (op, _value) in enumerate(items):
        literal += op is sre.LITERAL
        if literal >= _ENOUGH_LITERAL:
            return _trim_end(_flatten_end(items[: place + 1]))
    return items


def _is_branch(body: Any) -> bool:
    return len(body) == 1 and body[0][0] is sre.BRANCH


def _class_only(body: Any) -> bool:
    return all(
        op in (sre.IN, sre.ANY, sre.NOT_LITERAL)
        or (op is sre.SUBPATTERN and _class_only(value[3]))
        or (op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and _class_only(value[2]))
        for op, value in body
    )


def _only_space(items: Any) -> bool:
    def space(op: Any, value: Any) -> bool:
        if op is sre.LITERAL:
            return chr(value).isspace()
        if op is sre.IN:
            return all(
                (o is sre.CATEGORY and v is sre.CATEGORY_SPACE) or (o is sre.LITERAL and chr(v).isspace())
                for o, v in value
            )
        return False

    return all(space(op, value) for op, value in items)


def _sequence(items: Any) -> bytes:
    return b"".join(_item(op, value) for op, value in items)


def _item(op: Any, value: Any) -> bytes:
    if op is sre.LITERAL:
        return _literal(value)
    if op is sre.NOT_LITERAL:
        return b"[^\\n" + _literal(value) + b"]" if value < 128 else rb"[^\n]"
    if op is sre.ANY:
        return b"."
    if op is sre.IN:
        return _set(value)
    if op is sre.BRANCH:
        return b"(?:" + b"|".join(_sequence(branch) for branch in value[1]) + b")"
    if op is sre.SUBPATTERN:
        _group, add_flags, _del_flags, body = value
        text = _sequence(body)
        return (b"(?i:" if add_flags & re.IGNORECASE else b"(?:") + text + b")"
    if op is sre.ATOMIC_GROUP:
        return b"(?:" + _sequence(value) + b")"
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _repeat(*value)
    if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return b""
    if op in (sre.GROUPREF, sre.GROUPREF_EXISTS):
        return b".*"
    raise ValueError(f"the scanner has no form for {op}")


def _repeat(low: int, high: Any, body: Any) -> bytes:
    text = b"(?:" + _sequence(body) + b")"
    if low == 0 and high == 1:
        return text + b"?"
    if high is not _UNLIMITED and high <= _MOST_COUNTED and _ascii_only(body):
        return text + (b"{%d}" % low if low == high else b"{%d,%d}" % (low, high))
    # counting is dear for the scanner and tells it little: more than a few is any number
    low = min(low, _MOST_COUNTED)
    return text + (b"*" if low == 0 else b"+" if low == 1 else b"{%d,}" % low)


def _ascii_only(items: Any) -> bool:
    for op, value in items:
        if op is sre.LITERAL and value < 128:
            continue
        if op is sre.IN and not (value and value[0][0] is sre.NEGATE):
            negative = (sre.CATEGORY_NOT_DIGIT, sre.CATEGORY_NOT_SPACE, sre.CATEGORY_NOT_WORD)
            if all(o in (sre.LITERAL, sre.RANGE, sre.CATEGORY) and v not in negative for o, v in value):
                continue
        if op is sre.SUBPATTERN and _ascii_only(value[3]):
            continue
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and _ascii_only(value[2]):
            continue
        if op is sre.BRANCH and all(_ascii_only(branch) for branch in value[1]):
            continue
        return False
    return True


def _literal(code: int) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in chr(code).encode()) if code >= 128 else _byte(code)


def _byte(code: int) -> bytes:
    char = bytes([code])
    return char if char.isalnum() else b"\\x%02x" % code


def _set(items: Any) -> bytes:
    if len(items) == 1 and items[0][0] is sre.CATEGORY and items[0][1] in _NEGATIVE_CATEGORY:
        return _NEGATIVE_CATEGORY[items[0][1]]
    negated = False
    parts: list[bytes] = []
    wide = False
    for op, value in items:
        if op is sre.NEGATE:
            negated = True
        elif op is sre.LITERAL:
            if value < 128:
                parts.append(_byte(value))
            else:
                wide = True
        elif op is sre.RANGE:
            low, high = value
            if low < 128:
                parts.append(_byte(low) + b"-" + _byte(min(high, 127)))
            wide = wide or high >= 128
        elif value in _CATEGORY:
            parts.append(_CATEGORY[value])
        elif not negated:
            return b"."  # [\S\s] and the like
        # a negated set that excludes \W, \S or \D: leaving the category out only widens the set
    if negated:
        return b"[^\\n" + b"".join(parts) + b"]"
    # a character beyond ASCII is a run of high bytes to the scanner
    return b"(?:[" + b"".join(parts) + rb"]|[\x80-\xff]+)" if wide else b"[" + b"".join(parts) + b"]"


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
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        first, empty = _first(list(value[2]))
        return first, empty or value[0] == 0
    if op is sre.IN:
        tester = re.compile(_set(value).decode("ascii", "replace"), re.ASCII)
        return frozenset(char for char in _ANY_CHARACTER if tester.match(char)), False
    return _ANY_CHARACTER, False
