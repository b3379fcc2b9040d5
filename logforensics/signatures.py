"""Loads dialects (``parsers/*.toml``) and refuses a bad one with a message for the person who wrote it.

The same checks run in the tests, in ``logforensics parsers check DIR`` and when a user's own folder is
loaded with ``--parsers``: known keys only, ids unique, patterns that compile, named groups from the closed
vocabulary, at least one sample a signature, every sample matched with exactly its fields, no sample claimed
by another signature, no "not" line matched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import regex

from logforensics import __version__, expression
from logforensics.expression import SHORTEST, SHORTEST_IN_WINDOW, required_texts
from logforensics.model import ACTIVITIES, CATEGORIES, FIELDS, KINDS, PHASES, ROLES, STREAMS
from logforensics.patterns import compiled, write_atomically
from logforensics.prefixes import Peeled, behind_prefixes, clean, peel, segments, typed
from logforensics.resources import data_folder, data_text

# Files of the parsers folder that hold something other than signatures.
OTHER_TABLES = ("prefixes.toml", "callsites.toml")
# A user's runaway pattern must not hang the program; the longest real one needs microseconds.
MATCH_SECONDS = 1.0
MOST_LINES = 12

_DIALECT_KEYS = {"title", "seen_in", "reference", "stream", "signature"}
_SIGNATURE_KEYS = {
    "id",
    "says",
    "kind",
    "role",
    "category",
    "phase",
    "activity",
    "scope",
    "remedy",
    "stream",
    "pattern",
    "before",
    "after",
    "fallback",
    "full_scan",
    "seen_in",
    "reference",
    "sample",
    "not",
}
# What is no text; every other key is.
_TYPES: dict[str, type] = {
    "before": int,
    "after": int,
    "fallback": bool,
    "full_scan": bool,
    "seen_in": list,
    "sample": list,
    "not": list,
    "fields": dict,
}
# These are looked for in whole files; facts, progress and noise only where they can matter.
FAILING_ROLES = ("cause", "either", "symptom", "pointer", "teardown")
_SCOPES = ("rank", "peers", "node", "run")


class SignatureError(ValueError):
    """A dialect that cannot be used. The text says what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A line shape that a signature must match and the fields that it must give."""

    line: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of line. See CONTRIBUTING.md, "Add a signature", for what each key means.

    ``before`` and ``after`` widen the record to neighbouring lines of the same writer, joined with newlines.
    ``scope`` says who is hit: the rank that wrote it; it and an unnamed peer that disagree ("peers"); its node; or
    the whole run (then no rank is blamed).
    ``scan`` holds the texts of which every match has one; ``full_scan`` says whether they are looked for in the
    whole file or only at its ends and near failures (what healthy runs are full of would cost too much).
    A ``fallback`` is asked only when nothing else claims a traceback's last line.
    """

    name: str  # "<dialect>/<id>"
    says: str
    kind: str
    role: str
    regex: str
    scan: tuple[str, ...]
    category: str | None = None
    phase: str | None = None
    activity: str | None = None
    scope: str = "rank"
    remedy: str | None = None
    stream: str | None = None
    before: int = 0
    after: int = 0
    fallback: bool = False
    full_scan: bool = True
    seen_in: tuple[str, ...] = ()
    reference: str = ""
    samples: tuple[Sample, ...] = ()
    nots: tuple[tuple[str, str], ...] = ()

    @property
    def pattern(self) -> Any:
        """The compiled pattern; compiled when first needed, since most signatures are not met in one run."""
        return compiled(self.regex)

    def match(self, text: str) -> Match | None:
        """Return where the pattern is in ``text`` and what it captures, typed; None when it is not there."""
        try:
            found = self.pattern.search(text, timeout=MATCH_SECONDS)
        except TimeoutError:
            return None
        if found is None:
            return None
        captured: dict[str, Any] = {}
        for group, raw in found.groupdict().items():
            if raw is not None:
                value = typed(group, raw)
                if value is not None:
                    captured[group] = value.strip() if isinstance(value, str) else value
        return Match(self, captured, found.start(), found.end())


@dataclass(frozen=True, slots=True)
class Match:
    """A signature found in a record: the fields, and the part of the text that it explains."""

    signature: Signature
    fields: dict[str, Any]
    start: int
    end: int


@dataclass(slots=True)
class SignatureSet:
    """All signatures in use. ``problems`` holds what was refused from a user's folder."""

    signatures: list[Signature]
    problems: list[str] = field(default_factory=list)
    fallbacks: list[Signature] = field(init=False)

    def __post_init__(self) -> None:
        self.fallbacks = [signature for signature in self.signatures if signature.fallback]

    def claim(self, candidates: Iterable[Signature], text: str) -> Match | None:
        """Return the match of the one signature of ``candidates`` that claims ``text``.

        The tests allow one claimant for each sample; should a real line have several, the pattern that
        explains most of it wins, and the name decides a draw, so that the answer never depends on order.
        """
        matches = [match for signature in candidates if (match := signature.match(text)) is not None]
        return min(matches, key=lambda m: (m.start - m.end, m.signature.name)) if matches else None


@lru_cache(maxsize=2)
def shipped_signatures(cache: Path | None = None) -> SignatureSet:
    """Return the signatures that come with the program. Their samples are checked in the tests, not here.

    Parsing the dialects takes a second; with ``cache`` (a folder) the result is kept there under the hash of
    the files. A damaged or unwritable cache only costs that second.
    """
    files = dialect_files(data_folder("parsers"))
    texts = [(file.name, file.read_text(encoding="utf-8")) for file in files]
    kept = cache / f"signatures-{_content_hash(texts)[:32]}.json" if cache else None
    if kept is not None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            return SignatureSet([_revived(entry) for entry in json.loads(kept.read_text(encoding="utf-8"))])
    signatures = [signature for file_name, text in texts for signature in load_dialect(file_name, text)]
    if kept is not None:
        write_atomically(kept, json.dumps([_frozen(signature) for signature in signatures]).encode())
    return SignatureSet(signatures)


def _content_hash(texts: list[tuple[str, str]]) -> str:
    """Hash what the cached form depends on: the dialects, and the code that turns them into it."""
    digest = hashlib.sha256(__version__.encode())
    for file_name, text in texts:
        digest.update(f"\0{file_name}\0{text}".encode())
    for module in (__file__, expression.__file__):
        with contextlib.suppress(OSError):
            digest.update(Path(module).read_bytes())
    return digest.hexdigest()


_NOT_KEPT = {"samples", "nots", "reference", "seen_in"}


def _frozen(signature: Signature) -> dict[str, Any]:
    return {f.name: getattr(signature, f.name) for f in fields(signature) if f.name not in _NOT_KEPT}


def _revived(entry: dict[str, Any]) -> Signature:
    return Signature(**{**entry, "scan": tuple(entry["scan"])})


def signatures_with(folder: Path | None, cache: Path | None = None) -> SignatureSet:
    """Return the shipped signatures and those of a user's ``folder``.

    A bad file of the user's is reported in ``problems`` and left out; the analysis goes on with the rest.
    Raises SignatureError when the folder does not exist or holds no dialect.
    """
    if folder is None:
        return shipped_signatures(cache)
    return _with_own(tuple((path.name, path.read_bytes()) for path in dialect_files(folder)), cache)


@lru_cache(maxsize=4)  # by content: many runs are read with one folder, and an edited file must be seen
def _with_own(files: tuple[tuple[str, bytes], ...], cache: Path | None) -> SignatureSet:
    signatures = list(shipped_signatures(cache).signatures)
    problems: list[str] = []
    for name, content in files:
        try:
            own = load_dialect(name, content.decode())
            taken = {s.name for s in signatures}
            for signature in own:
                if signature.name in taken:
                    raise SignatureError(f"{name}: {signature.name}: this name is taken; choose another id")
                taken.add(signature.name)
            check_samples(own, SignatureSet(signatures + own))
            signatures += own
        except SignatureError as error:
            problems.append(str(error))
        except UnicodeDecodeError as error:
            problems.append(f"{name}: not UTF-8 text ({error}); save it as UTF-8")
    return SignatureSet(signatures, problems)


def dialect_files(folder: Path | Traversable) -> list[Any]:
    """Return the dialect files of a folder, by name. Raises SignatureError when there is none."""
    if not folder.is_dir():
        raise SignatureError(f"{folder}: no such folder; give a folder of dialect files (*.toml)")
    paths = sorted(
        (p for p in folder.iterdir() if p.name.endswith(".toml") and p.name not in OTHER_TABLES and p.is_file()),
        key=lambda path: path.name,
    )
    if not paths:
        raise SignatureError(f"{folder}: no dialect file (*.toml) in this folder")
    return paths


def load_folder(folder: Path | Traversable, *, check: bool = True) -> list[Signature]:
    """Load every dialect of a folder; ``check`` also runs all samples against all signatures of it.

    Raises SignatureError at the first problem.
    """
    signatures: list[Signature] = []
    for path in dialect_files(folder):
        signatures += load_dialect(path.name, path.read_text(encoding="utf-8"))
    names = [signature.name for signature in signatures]
    for name in names:
        if names.count(name) > 1:
            raise SignatureError(f"{name}: two signatures have this name; rename one")
    if check:
        check_samples(signatures, SignatureSet(signatures))
    return signatures


def load_dialect(file_name: str, text: str) -> list[Signature]:
    """Read one dialect file. Raises SignatureError for anything but a sample that does not fit."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SignatureError(f"{file_name}: not valid TOML: {error}") from error
    for key in ("title", "seen_in", "reference"):
        if key not in table:
            raise SignatureError(f"{file_name}: the dialect has no {key!r}; add it at the top of the file")
    _refuse_unknown(file_name, "", table, _DIALECT_KEYS)
    dialect = file_name.removesuffix(".toml")
    entries = table.get("signature", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SignatureError(f"{file_name}: signatures are tables in a list; write [[signature]] above each")
    if not isinstance(table["seen_in"], list):
        raise SignatureError(f"{file_name}: seen_in must be a list of texts")
    if not entries:
        raise SignatureError(f"{file_name}: no [[signature]] in this file")
    return [_build(file_name, dialect, table, entry, text) for entry in entries]


def _refuse_unknown(where: str, name: str, table: dict[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            place = f"{where}: {name}: " if name else f"{where}: "
            raise SignatureError(f"{place}unknown key {key!r}; known keys are {', '.join(sorted(known))}")
        expected = _TYPES.get(key, str)
        if name and not isinstance(table[key], expected):
            kind = {str: "a text", int: "a number", bool: "true or false", list: "a list", dict: "a table"}[expected]
            raise SignatureError(f"{where}: {name}: {key} must be {kind}, not {table[key]!r}")


def _build(file_name: str, dialect: str, table: dict[str, Any], entry: dict[str, Any], text: str) -> Signature:
    identity = str(entry.get("id", ""))
    # tomllib keeps no line numbers: the id is looked up in the text
    number = next((i for i, line in enumerate(text.splitlines(), 1) if f'"{identity}"' in line), 0)
    where = f"{file_name}:{number}" if number else file_name

    def wrong(what: str) -> SignatureError:
        return SignatureError(f"{where}: {identity or '(no id)'}: {what}")

    if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", identity):
        raise wrong("the id must be words in lower case joined by '-', naming the event, e.g. 'watchdog-timeout'")
    _refuse_unknown(where, identity, entry, _SIGNATURE_KEYS)
    for key in ("says", "kind", "role", "pattern"):
        if not entry.get(key):
            raise wrong(f"{key!r} is missing")
    for key, allowed in (
        ("kind", KINDS),
        ("role", ROLES),
        ("category", CATEGORIES),
        ("phase", PHASES),
        ("activity", ACTIVITIES),
        ("scope", _SCOPES),
        ("stream", STREAMS),
    ):
        if key in entry and entry[key] not in allowed:
            raise wrong(f"{key} {entry[key]!r} is not one of {', '.join(allowed)}")
    if entry["role"] == "cause" and "category" not in entry:
        raise wrong("a cause needs a category")
    if "remedy" in entry and entry["remedy"] not in known_remedies():
        raise wrong(f"remedy {entry['remedy']!r} is not one of {', '.join(known_remedies())}")
    for key in ("before", "after"):
        if not 0 <= entry.get(key, 0) <= MOST_LINES:
            raise wrong(f"{key} must be between 0 and {MOST_LINES} lines")
    try:
        pattern = compiled(entry["pattern"])
        fallback = entry.get("fallback", False)
        full_scan = entry.get("full_scan", entry["role"] in FAILING_ROLES)
        shortest = SHORTEST if full_scan else SHORTEST_IN_WINDOW
        scan = () if fallback else required_texts(entry["pattern"], shortest)
    except (regex.error, re.error, ValueError) as error:
        raise wrong(f"the pattern does not compile: {error}") from error
    for group in pattern.groupindex:
        if group not in FIELDS:
            raise wrong(f"the pattern captures {group!r}, which is no known field; known: {', '.join(sorted(FIELDS))}")
    if not entry.get("sample"):
        raise wrong("there is no [[signature.sample]]; add a real line and the fields it must give")
    for key in ("sample", "not"):
        for item in entry.get(key, []):
            if not isinstance(item, dict):
                raise wrong(f"{key} must be tables in a list; write [[signature.{key}]] above each")
    for sample in entry["sample"]:
        _refuse_unknown(where, f"{identity}: sample", sample, {"line", "fields"})
        if not sample.get("line"):
            raise wrong("a sample has no 'line'")
    for refused in entry.get("not", []):
        _refuse_unknown(where, f"{identity}: not", refused, {"line", "why"})
        if not refused.get("line") or not refused.get("why"):
            raise wrong("a [[signature.not]] needs 'line' and 'why'")
    return Signature(
        name=f"{dialect}/{identity}",
        says=entry["says"],
        kind=entry["kind"],
        role=entry["role"],
        regex=entry["pattern"],
        scan=scan,
        category=entry.get("category"),
        phase=entry.get("phase"),
        activity=entry.get("activity"),
        scope=entry.get("scope", "rank"),
        remedy=entry.get("remedy"),
        stream=entry.get("stream", table.get("stream")),
        before=entry.get("before", 0),
        after=entry.get("after", 0),
        fallback=fallback,
        full_scan=full_scan,
        seen_in=tuple(entry.get("seen_in", table["seen_in"])),
        reference=entry.get("reference", table["reference"]),
        samples=tuple(Sample(s["line"], s.get("fields", {})) for s in entry["sample"]),
        nots=tuple((n["line"], n["why"]) for n in entry.get("not", [])),
    )


@lru_cache(maxsize=1)
def known_remedies() -> tuple[str, ...]:
    """Return the ids of the remedies that a signature can point to."""
    return tuple(entry["id"] for entry in tomllib.loads(data_text("reports", "remedies.toml"))["remedy"])


def peel_record(text: str) -> tuple[str, Peeled]:
    """Return a record (one line, or several joined by newlines) without prefixes, and its first line's."""
    lines = [peel(clean(line)) for line in text.split("\n")]
    return "\n".join(line.text for line in lines), lines[0]


def matching(signatures: list[Signature], line: str) -> list[Match]:
    """Return the match of every signature that claims a raw line (or any segment of it).

    Fallbacks are asked only when nothing else claims it.
    """
    records = [peel_record(record) for record in ([line] if "\n" in line else segments(line))]
    found: list[Match] = []
    for fallback in (False, True):
        asked = [signature for signature in signatures if signature.fallback is fallback]
        for text, first in [] if found else records:
            later = text[len(first.text) :]
            for reading in first.readings:
                claims = [match for signature in asked if (match := signature.match(reading + later)) is not None]
                if claims:
                    found += claims
                    break
    return found


def check_samples(signatures: list[Signature], everything: SignatureSet) -> None:
    """Check each sample, bare and behind every prefix, and each "not" line against ``everything``.

    Raises SignatureError for the first that does not fit.
    """
    for signature in signatures:
        where = "{}.toml: {}".format(*signature.name.split("/"))
        for sample in signature.samples:
            lines = [sample.line, *behind_prefixes(sample.line)]
            asked = candidates("\n".join(lines), everything)
            for line in lines:
                problem = sample_problem(signature, sample, line, asked)
                if problem:
                    raise SignatureError(f"{where}: {problem}")
        for line, why in signature.nots:
            if any(match.signature.name == signature.name for match in matching([signature], line)):
                raise SignatureError(
                    f"{where}: matches a line that it must not ({why}); make the pattern more precise\n  line: {line}"
                )


def candidates(text: str, everything: SignatureSet) -> list[Signature]:
    """Return the signatures that a scan would ask about a text: the fallbacks, and who needs a part of it."""
    return [s for s in everything.signatures if s.fallback or any(needed in text for needed in s.scan)]


def sample_problem(signature: Signature, sample: Sample, line: str, asked: list[Signature]) -> str | None:
    """Return what is wrong when ``line`` (the sample, maybe behind a prefix) is matched; None if all is well."""
    claims = matching(asked, line)
    own = next((match.fields for match in claims if match.signature.name == signature.name), None)
    if own is None and signature.match(peel_record(line)[0]) is not None:
        texts = ", ".join(repr(text) for text in signature.scan)
        return f"a scan looks for {texts}, and its sample holds none of it; write the text as it is\n  sample: {line}"
    if own is None:
        return "does not match its sample\n" + how_far(signature, line)
    if _flat(own) != _flat(sample.fields):
        return f"its sample gives {own}, but the fields say {sample.fields}; correct one of them\n  sample: {line}"
    other = next((match.signature.name for match in claims if match.signature.name != signature.name), None)
    if other:
        return f"its sample is claimed by {other} too; make one of them more precise\n  sample: {line}"
    return None


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """A prefix may take a blank of an indented line along."""
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in fields.items()}


def how_far(signature: Signature, line: str) -> str:
    """Return the sample with a caret under the place up to which the pattern could follow it."""
    text, _ = peel_record(line)
    flat = text.replace("\n", "⏎")
    longest = reach = 0
    for start in range(len(text)):
        low, high = start, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if signature.pattern.fullmatch(text[:middle], start, partial=True):
                low = middle
            else:
                high = middle - 1
        if low - start > longest:
            longest, reach = low - start, low
    caret = " " * reach + "^ matched up to here"
    return f"  sample: {flat}\n          {caret}\n  hint: in a verbose pattern a blank is written \\s"
