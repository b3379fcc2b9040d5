"""Replaces what identifies somebody by aliases: the same name gets the same alias wherever it stands.

First everything is shown to ``learn``, then ``text`` replaces: a host that one line names in a way that gives it away
(NCCL's prefix) is then known in lines that only mention it, and aliases are numbered in the order of what was learned.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import regex

from logforensics.redact.addresses import address_key, address_spans
from logforensics.redact.names import expanded, host_names, is_host, is_telling, mail_spans, user_names
from logforensics.redact.secrets import secret_spans

# An escape sequence inside a name would hide it here and vanish in the report.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ALIASES = re.compile(r"(?<![A-Za-z0-9])(host|user|ip|mail|secret)-(\d+)(?![A-Za-z0-9-])")
_HIDDEN = re.compile(r"\[secret-\d+\]")
_DOTTED = re.compile(r"\d+(?:\.\d+){3}")
# A secret shorter than this is replaced where it is assigned, not wherever its letters stand.
_SHORTEST_WORD, _LONGEST_WORD = 8, 200
_Found = tuple[int, int, str, str]


class Redactor:
    """Knows the names of one run and their aliases. Aliases already in the text stay what they are."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: dict[str, int] = {}
        self._keys: dict[tuple[str, str], None] = {}
        self._words: dict[str, tuple[str, str]] = {}
        self._taken: dict[str, set[int]] = {}
        self._domains: dict[str, str] = {}
        self._versions: set[str] = set()
        self._found: dict[str, list[_Found]] = {}
        self._done: dict[str, str] = {}

    def learn(self, text: str) -> None:
        """Take note of every name in ``text``. Call it for all texts before ``text`` is called for the first."""
        if text in self._found:
            return
        plain = _without_escapes(text)
        for match in _ALIASES.finditer(plain):
            self._taken.setdefault(match[1], set()).add(int(match[2]))
        found = self._found[text] = _chosen(self._candidates(plain))
        for _, _, kind, name in found:
            self._know(kind, name)
        self._done.clear()

    def learn_host(self, name: str) -> None:
        """Take note of a name that is known to be a host's (or its address)."""
        if key := address_key(name):
            self._know("ip", key)
        elif is_host(name):
            self._know("host", name)

    def learn_version(self, text: str) -> None:
        """Take note that the dotted numbers in ``text`` are versions, not addresses."""
        self._versions.update(_DOTTED.findall(text))

    def host(self, name: str) -> str:
        """Return the alias of a host's name or address; "localhost" and the like stay."""
        if key := address_key(name):
            return self._alias("ip", key)
        return self._alias("host", self._host_key(name)) if is_host(name) else self.text(name)

    def text(self, text: str) -> str:
        """Return ``text`` with aliases for all that identifies somebody, and nothing else changed."""
        if text not in self._done:
            self.learn(text)
            self._done[text] = self._replaced(_without_escapes(text), self._found[text])
        return self._done[text]

    def advice(self, text: str) -> str:
        """Return our own words, filled with what logs say: hosts and users in them that no log names are examples."""
        return self._replaced(text, _chosen(self._unnamed(text)))

    def _candidates(self, text: str) -> Iterator[_Found]:
        """All that could be replaced, the surest kinds first."""
        yield from self._unnamed(text)
        yield from host_names(text)
        yield from user_names(text)

    def _unnamed(self, text: str) -> Iterator[_Found]:
        for start, end in secret_spans(text):
            if not _HIDDEN.fullmatch(text, start, end):
                yield start, end, "secret", text[start:end]
        for start, end in mail_spans(text):
            yield start, end, "mail", text[start:end].lower()
        for start, end, key in address_spans(text, self._versions):
            yield start, end, "ip", key

    def _know(self, kind: str, name: str) -> None:
        if kind == "hosts":
            for each in expanded(name):
                self.learn_host(each.partition(":")[0])
            return
        key = self._host_key(name) if kind == "host" else name
        kind = kind.rstrip("?")
        self._keys.setdefault((kind, key))
        words = {name, name.lower(), key} if kind == "host" else {name}
        if kind == "secret" and not (_SHORTEST_WORD <= len(name) <= _LONGEST_WORD and any(map(str.isdigit, name))):
            return
        if kind not in {"host", "user", "secret"} or name in self._words:
            return
        for word in words:
            if kind == "secret" or is_telling(word):
                self._words.setdefault(word, (kind, key))
        self.__dict__.pop("_known", None)

    def _host_key(self, name: str) -> str:
        """The name that a host's short and full spellings share: the first label, if only one domain has it."""
        low = name.lower().rstrip(".")
        label, _, domain = low.partition(".")
        if not domain:
            return low
        return label if self._domains.setdefault(label, domain) == domain else low

    @cached_property
    def _known(self) -> Any:
        """Matches every known word, also behind a written-out line end (``\\nalice``) and in URLs (``%2Falice``)."""
        if not self._words:
            return None
        before = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"
        return regex.compile(rf"{before}\L<words>(?![A-Za-z0-9])", words=list(self._words))

    def _alias(self, kind: str, key: str) -> str:
        number = self._numbers.get((kind, key))
        if number is None:
            for known in (*self._keys, (kind, key)):
                if known not in self._numbers:
                    self._numbers[known] = self._next(known[0])
            self._keys.setdefault((kind, key))
            number = self._numbers[kind, key]
        return f"[secret-{number}]" if kind == "secret" else f"{kind}-{number}"

    def _next(self, kind: str) -> int:
        number = self._last.get(kind, 0) + 1
        while number in self._taken.get(kind, ()):
            number += 1
        self._last[kind] = number
        return number

    def _replaced(self, text: str, found: list[_Found]) -> str:
        spans = found
        if self._known is not None:
            words = ((*match.span(), *self._words[match.group()]) for match in self._known.finditer(text))
            spans = _chosen((*found, *words))
        out, last = [], 0
        for start, end, kind, name in spans:
            out += [text[last:start], self._name_of(kind, name)]
            last = end
        return "".join((*out, text[last:]))

    def _name_of(self, kind: str, name: str) -> str:
        if kind == "hosts":
            return ",".join(
                self.host(host) + colon + slots
                for host, colon, slots in (each.partition(":") for each in expanded(name))
            )
        return self._alias(kind.rstrip("?"), self._host_key(name) if kind == "host" else name)


def _without_escapes(text: str) -> str:
    # what is left of one sequence could be another's beginning
    return _ESCAPES.sub("", text).replace("\x1b", "") if "\x1b" in text else text


def _chosen(candidates: Iterable[_Found]) -> list[_Found]:
    """Of spans that overlap the first one given counts, or a longer one of its kind; the result is in order."""
    chosen: list[_Found] = []
    for one in candidates:
        if one[0] == one[1]:
            continue
        first = bisect_left(chosen, one[0], key=lambda span: span[1])
        if first < len(chosen) and chosen[first][1] == one[0]:
            first += 1
        last = bisect_left(chosen, one[1], lo=first, key=lambda span: span[0])
        inside = all(other[2] == one[2] and one[0] <= other[0] and other[1] <= one[1] for other in chosen[first:last])
        if inside:
            chosen[first:last] = [one]
    return chosen
