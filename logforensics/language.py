"""Which language the program speaks. Texts are written in English; catalogues translate them (gettext).

``_("...")`` marks a text for translation and translates it when it is used. Log lines, ids and field names are never
translated. Catalogues live in ``reports/locale/<language>/LC_MESSAGES/logforensics.po``
(CONTRIBUTING.md, "Translations").
"""

from __future__ import annotations

import gettext
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from logforensics.resources import data_folder

LANGUAGES = ("en", "tr")
_DOMAIN = "logforensics"

_spoken: ContextVar[gettext.NullTranslations | None] = ContextVar("spoken", default=None)


def _(text: str) -> str:
    """Return ``text`` in the language that is spoken."""
    spoken = _spoken.get()
    return spoken.gettext(text) if spoken else text


def later(text: str) -> str:
    """Mark a text of a table for translation; ``_`` translates it when it is used."""
    return text


def several(one: str, many: str, count: int) -> str:
    """Return the singular or the plural form, in the language that is spoken."""
    spoken = _spoken.get()
    if spoken:
        return spoken.ngettext(one, many, count)
    return one if count == 1 else many


def list_ranks(ranks: list[int]) -> str:
    """Return ranks for people to read: "1, 4-7"."""
    parts: list[str] = []
    start = previous = None
    for rank in [*sorted(ranks), None]:
        if start is None:
            start = previous = rank
        elif rank is not None and previous is not None and rank == previous + 1:
            previous = rank
        else:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = previous = rank
    return ", ".join(parts)


def name_ranks(ranks: list[int]) -> str:
    """Return ranks with their noun: "rank 3", "ranks 1, 4-7"."""
    return several("rank {ranks}", "ranks {ranks}", len(ranks)).format(ranks=list_ranks(ranks))


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Speak ``language`` (one of ``LANGUAGES``) inside the block. Raises ValueError for another one."""
    if language not in LANGUAGES:
        raise ValueError(f"no translation into {language!r}; there are {', '.join(LANGUAGES)}")
    catalogue: gettext.NullTranslations | None = None
    if language != "en":
        file = data_folder("reports") / "locale" / language / "LC_MESSAGES" / f"{_DOMAIN}.mo"
        with file.open("rb") as stream:
            catalogue = gettext.GNUTranslations(stream)
    token = _spoken.set(catalogue)
    try:
        yield
    finally:
        _spoken.reset(token)
