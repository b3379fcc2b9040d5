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
from logforensics.prefixes import Peeled, clean, peel, segments, typed
from logforensics.resources import data_folder

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
    shipped = shipped_signatures(cache)
    if folder is None:
        return shipped
    paths = dialect_files(folder)
    signatures = list(shipped.signatures)
    problems: list[str] = []
    for path in paths:
        try:
            own = load_dialect(path.name, path.read_text(encoding="utf-8"))
            check_samples(own, SignatureSet(signatures + own))
            taken = {s.name for s in signatures}
            for signature in own:
                if signature.name in taken:
                    raise SignatureError(f"{path.name}: {signature.name}: this name is taken; choose another id")
            signatures += own
        except (SignatureError, UnicodeDecodeError) as error:
            problems.append(str(error))
    return SignatureSet(signatures, problems)


def dialect_files(folder: Path | Traversable) -> list[Any]:
    """Return the dialect files of a folder, by name. Raises SignatureError when there is none."""
    if not folder.is_dir():
        raise SignatureError(f"{folder}: no such folder; give a folder of dialect files (*.toml)")
    paths = sorted(
        (path for path in folder.iterdir() if path.name.endswith(".toml") and path.name not in OTHER_TABLES),
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
    if not entries:
        raise SignatureError(f"{file_name}: no [[signature]] in this file")
    return [_build(file_name, dialect, table, entry, text) for entry in entries]


def _refuse_unknown(where: str, name: str, table: dict[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            place = f"{where}: {name}: " if name else f"{where}: "
            raise SignatureError(f"{place}unknown key {key!r}; known keys are {', '.join(sorted(known))}")


def _build(file_name: str, dialect: str, table: dict[str, Any], entry: dict[str, Any], text: str) -> Signature:
    identity = entry.get("id", "")
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
    for sample in entry["sample"]:
        _refuse_unknown(where, f"{identity}: sample", sample, {"line", "fields"})
        if "line" not in sample:
            raise wrong("a sample has no 'line'")
    for refused in entry.get("not", []):
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


def peel_record(text: str) -> tuple[str, Peeled]:
    """Return a record (one line, or several joined by newlines) without prefixes, and its first line's."""
    lines = [peel(clean(line)) for line in text.split("\n")]
    return "\n".join(line.text for line in lines), lines[0]


def matching(signatures: list[Signature], line: str) -> list[Match]:
    """Return the match of every signature that claims a raw line (or any segment of it).

    Fallbacks are asked only when nothing else claims it.
    """
    records = [line] if "\n" in line else segments(line)
    found: list[Match] = []
    for record in records:
        text, _ = peel_record(record)
        for fallback in (False, True):
            if not found:
                found += [
                    match
                    for signature in signatures
                    if signature.fallback is fallback and (match := signature.match(text)) is not None
                ]
    return found


def check_samples(signatures: list[Signature], everything: SignatureSet) -> None:
    """Check each sample and each "not" line of ``signatures`` against ``everything``.

    Raises SignatureError for the first that does not fit.
    """
    for signature in signatures:
        for sample in signature.samples:
            problem = sample_problem(signature, sample, sample.line, everything)
            if problem:
                raise SignatureError(f"{signature.name}: {problem}")
        for line, why in signature.nots:
            text, _ = peel_record(line)
            if signature.match(text) is not None:
                raise SignatureError(f"{signature.name}: matches a line that it must not ({why}): {line}")


def sample_problem(signature: Signature, sample: Sample, line: str, everything: SignatureSet) -> str | None:
    """Return what is wrong when ``line`` (the sample, maybe behind a prefix) is matched; None if all is well."""
    claims = matching(everything.signatures, line)
    own = next((match.fields for match in claims if match.signature.name == signature.name), None)
    if own is None:
        return "does not match its sample\n" + how_far(signature, line)
    if own != sample.fields:
        return f"its sample gives {own}, but the fields say {sample.fields}\n  sample: {line}"
    other = next((match.signature.name for match in claims if match.signature.name != signature.name), None)
    if other:
        return f"its sample is claimed by {other} too; make one of them more precise\n  sample: {line}"
    return None


def how_far(signature: Signature, line: str) -> str:
    """Return the sample with a caret under the place up to which the pattern could follow it."""
    text, _ = peel_record(line)
    flat = text.replace("\n", "⏎")
    reach = 0
    for start in range(len(text)):
        low, high = start, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if signature.pattern.fullmatch(text[:middle], start, partial=True):
                low = middle
            else:
                high = middle - 1
        reach = max(reach, low if low > start else 0)
    caret = " " * reach + "^ matched up to here"
    return f"  sample: {flat}\n          {caret}\n  hint: in a verbose pattern a blank is written \\s"
