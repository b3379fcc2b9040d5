"""Turkish as well as English: nothing untranslated, nothing built so that it cannot be, the same diagnosis."""

from __future__ import annotations

import gettext
import html
import importlib
import io
import json
import re
from pathlib import Path

import pytest
from inputs import ROOT, Program
from rich.console import Console

from logforensics import analyze, language
from logforensics.language import LANGUAGES, speaking
from logforensics.model import CATEGORIES, FIELDS
from logforensics.render.html import to_html
from logforensics.render.markdown import to_markdown
from logforensics.render.terminal import print_verdict

pytest.importorskip("babel", reason="the dev extra brings what reads catalogues")

translations = importlib.import_module("tools.translations")
MESSAGES = translations.messages()
CATALOGUES = translations.catalogues()
RUNS = [
    "zero1-shape-2nodes-4ranks",
    "ddp-slow_eval-fr",
    "ddp-shape-tee-restart",
    "ddp-host_oom_retried",
    "zero3-sigkill-deepspeed",
]
_PLACEHOLDER = re.compile(r"\{(\w+)")
_MARKED = re.compile("⟦[^⟦⟧]*⟧")


class _Marked(gettext.NullTranslations):
    """Speaks English, and puts what was translated between marks."""

    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"⟦{msgid1 if n == 1 else msgid2}⟧"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch):
    token = language._spoken.set(_Marked())
    yield
    language._spoken.reset(token)


def forms(text: str | tuple[str, ...]) -> tuple[str, ...]:
    return text if isinstance(text, tuple) else (text,)


def test_every_language_has_a_catalogue():
    assert {path.parents[1].name for path in CATALOGUES} == set(LANGUAGES) - {"en"}


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parents[1].name)
def test_every_text_is_translated(path: Path):
    assert translations.missing(translations.read(path)) == []


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parents[1].name)
def test_the_files_are_in_step_with_the_texts(path: Path):
    catalogue = translations.updated(translations.read(path))

    assert path.read_bytes() == translations.po_text(catalogue), "run make translations"
    assert path.with_suffix(".mo").read_bytes() == translations.mo_text(catalogue)


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parents[1].name)
def test_a_translation_has_the_same_placeholders(path: Path):
    wrong = []
    for entry in translations.read(path):
        wanted = {name for text in forms(entry.id) for name in _PLACEHOLDER.findall(text)}
        wrong += [
            (entry.id, said) for said in forms(entry.string) if entry.id and set(_PLACEHOLDER.findall(said)) != wanted
        ]

    assert wrong == []


def test_a_text_that_nobody_translated_is_found():
    catalogue = translations.read(CATALOGUES[0])
    text = next(iter(MESSAGES))
    catalogue.delete(forms(text)[0])

    assert translations.missing(catalogue) == [text]


@pytest.mark.parametrize("run", RUNS)
def test_the_diagnosis_is_the_same_in_every_language(run: str):
    told = []
    for spoken in LANGUAGES:
        with speaking(spoken):
            verdict = analyze(ROOT / "fixtures" / run / "logs").verdict
        told.append((verdict.category, verdict.ranks, verdict.phase, verdict.confidence, verdict.evidence))

    assert all(answer == told[0] for answer in told)


def _left(text: str, known: set[str]) -> set[str]:
    """The English words of a text that stand outside the marks, and are no log text."""
    while _MARKED.search(text):
        text = _MARKED.sub(" ", text)
    words = set(re.findall(r"(?<![\w./{}<>$=:…-])[A-Za-z]{3,}(?![\w./{}<>$=(…-])", text))
    return {word for word in words if word not in known}


def _known(analysis) -> set[str]:
    """What may stand in a report in any language: log text, paths, versions, ids."""
    texts = [event.message for event in analysis.events]
    texts += [str(value) for event in analysis.events for value in event.fields.values()]
    texts += [line for excerpt in analysis.excerpts.values() for _number, line in excerpt]
    texts += [source.name for source in analysis.sources] + [*analysis.facts, *analysis.facts.values()]
    texts += [event.signature.replace("-", " ") for event in analysis.events]
    texts += [str(event.node) for event in analysis.events]
    texts += [command for remedy in analysis.verdict.remedies for command in remedy.commands]
    words = {word for text in texts for word in re.findall(r"[A-Za-z]+", text)}
    words |= {word for name in (*FIELDS, *CATEGORIES) for word in name.split("_")}
    return (
        words | set(CATEGORIES) | {"logforensics", "UTC", "KB", "MB", "min"}
    )  # units of the SI are the same everywhere


@pytest.mark.parametrize("run", RUNS)
def test_the_terminal_speaks_nothing_but_translations(run: str, marked):
    analysis = analyze(ROOT / "fixtures" / run / "logs")
    out = io.StringIO()
    print_verdict(analysis, Console(file=out, width=4000))

    assert _left(out.getvalue(), _known(analysis)) == set()


@pytest.mark.parametrize("run", RUNS)
def test_markdown_speaks_nothing_but_translations(run: str, marked):
    analysis = analyze(ROOT / "fixtures" / run / "logs")

    text = re.sub(r"</?\w+>|```\w*", " ", to_markdown(analysis))

    assert _left(text.replace("`", " "), _known(analysis)) == set()


@pytest.mark.parametrize("run", RUNS)
def test_the_page_speaks_nothing_but_translations(run: str, marked):
    analysis = analyze(ROOT / "fixtures" / run / "logs")
    page = to_html(analysis)
    shown = re.sub(r"(?s)<(script|style|code)\b.*?</\1>", " ", page)
    attributes = re.findall(r'(?:aria-label|title|placeholder|data-[\w-]+)="([^"]*[a-z] [a-z][^"]*)"', shown)
    shown = re.sub(r"(?s)<[^>]*>", " ", shown)

    assert _left(html.unescape(" ".join([shown, *attributes])), _known(analysis)) == set()


@pytest.mark.parametrize("run", RUNS[:2])
def test_the_scripts_speak_nothing_but_translations(run: str, marked):
    page = to_html(analyze(ROOT / "fixtures" / run / "logs"))
    (words,) = re.findall(r'(?s)<script[^>]*id="words"[^>]*>(.*?)</script>', page)

    for said in json.loads(words).values():
        for text in [said] if isinstance(said, str) else said.values():
            assert _left(text, set()) == set(), text


def test_the_command_line_speaks_turkish(tmp_path: Path, monkeypatch, capfd):
    report = tmp_path / "report.html"
    ran = Program(monkeypatch, capfd)("analyze", ROOT / "fixtures" / RUNS[0] / "logs", "--lang", "tr", "--html", report)

    assert (ran.status, ran.err) == (0, "")
    assert "İlk hata veren: rank 3" in ran.out
    page = report.read_text()
    assert '<html lang="tr">' in page and "İlk hata veren: rank 3" in page


def test_a_language_that_there_is_not_is_refused_in_one_line(tmp_path: Path, monkeypatch, capfd):
    ran = Program(monkeypatch, capfd)("analyze", tmp_path, "--lang", "klingon")

    assert (ran.status, ran.err) == (2, "logforensics: --lang 'klingon' is not one of en, tr\n")
    with pytest.raises(ValueError, match="no translation into 'klingon'"), speaking("klingon"):
        pass


def test_english_needs_no_catalogue():
    with speaking("en"):
        assert language._("Evidence") == "Evidence"
        assert language.several("{count} file", "{count} files", 2) == "{count} files"
