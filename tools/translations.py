"""Keeps the catalogues of translations in step with the texts: ``python tools/translations.py``.

Texts are marked in the code (``_``, ``several``, ``later``), in the templates (``_``), and are all titles and steps of
``reports/remedies.toml``. This brings ``reports/locale/*/LC_MESSAGES/logforensics.po`` up to date, says what is not
translated yet, and makes the ``.mo`` beside it that the program reads.
"""

from __future__ import annotations

import io
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.catalog import Message as Entry
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[1]
LOCALES = ROOT / "reports" / "locale"
KEYWORDS = {"_": None, "later": None, "several": (1, 2)}
Message = str | tuple[str, ...]


class _Catalogue(Catalog):
    """A catalogue whose header says what reading it needs, and nothing that differs from machine to machine."""

    @property
    def mime_headers(self) -> list[tuple[str, str]]:
        """The language, how many plural forms, the encoding; no dates, no names to fill in, no version of Babel."""
        needed = {"Language", "Plural-Forms", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
        return [(name, value) for name, value in super().mime_headers if name in needed]


@cache
def messages() -> dict[Message, list[str]]:
    """Return every text to translate, in a fixed order, with the files that it stands in."""
    found: dict[Message, list[str]] = {}
    for place, text in _texts():
        places = found.setdefault(text, [])
        if place not in places:
            places.append(place)
    return found


def _texts() -> Iterator[tuple[str, Message]]:
    code = [("python", path) for path in sorted((ROOT / "logforensics").rglob("*.py"))]
    templates = [("jinja2.ext:babel_extract", path) for path in sorted((ROOT / "reports").glob("*.j2"))]
    for method, path in code + templates:
        with path.open("rb") as file:
            for _line, text, _comments, _context in extract(method, file, keywords=KEYWORDS):
                yield path.relative_to(ROOT).as_posix(), text
    remedies = ROOT / "reports" / "remedies.toml"
    for entry in tomllib.loads(remedies.read_text(encoding="utf-8"))["remedy"]:
        for text in (entry["title"], *entry.get("steps", [])):
            yield remedies.relative_to(ROOT).as_posix(), text


def catalogues() -> list[Path]:
    """Return the catalogues that there are, one a language."""
    return sorted(LOCALES.glob("*/LC_MESSAGES/logforensics.po"))


def read(path: Path) -> Catalog:
    """Return a catalogue from its file."""
    with path.open("rb") as file:
        return read_po(file, locale=path.parents[1].name)


def missing(catalogue: Catalog) -> list[Message]:
    """Return the texts that have no translation, or only a doubtful one."""
    return [text for text in messages() if not _done(catalogue, text)]


def _entry(catalogue: Catalog, text: Message) -> Entry | None:
    """What a catalogue has of a text; one with a plural is filed under its singular."""
    return catalogue.get(text[0] if isinstance(text, tuple) else text)


def _done(catalogue: Catalog, text: Message) -> bool:
    entry = _entry(catalogue, text)
    if entry is None or entry.fuzzy:
        return False
    return all(entry.string) if isinstance(entry.string, tuple) else bool(entry.string)


def updated(catalogue: Catalog) -> Catalog:
    """Return a catalogue with exactly the texts that are marked now, their translations kept."""
    fresh = _Catalogue(locale=catalogue.locale, header_comment=catalogue.header_comment, charset="utf-8", fuzzy=False)
    for text, places in messages().items():
        known = _entry(catalogue, text)
        same = known is not None and isinstance(known.id, tuple) == isinstance(text, tuple)
        fresh.add(
            text, known.string if known is not None and same else None, locations=[(place, None) for place in places]
        )
    return fresh


def po_text(catalogue: Catalog) -> bytes:
    """Return a catalogue as its file."""
    out = io.BytesIO()
    write_po(out, catalogue, width=120, include_lineno=False)
    return out.getvalue()


def mo_text(catalogue: Catalog) -> bytes:
    """Return a catalogue as the program reads it."""
    out = io.BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def main() -> int:
    """Bring every catalogue up to date; 1 when something is not translated."""
    status = 0
    for path in catalogues():
        catalogue = updated(read(path))
        path.write_bytes(po_text(catalogue))
        path.with_suffix(".mo").write_bytes(mo_text(catalogue))
        for text in missing(catalogue):
            print(f"{path.relative_to(ROOT)}: not translated: {text!r}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
