"""The diagnosis as JUnit XML: one test case, the run, for the CI that shows such reports."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from logforensics.language import _
from logforensics.render.text import clean
from logforensics.render.view import Page, Quote, build_page

if TYPE_CHECKING:
    from logforensics.analysis import Analysis


def to_junit(analysis: Analysis, name: str | None = None) -> str:
    """Return a JUnit report with one test case: it fails unless no failure was found.

    ``name`` is the test case's; without one it is called after what was analysed. An undetermined verdict fails, too:
    the run died, only the reason is not established.
    """
    page = build_page(analysis)
    name = name or clean(", ".join(analysis.paths)) or "run"
    failed = page.status != "no_failure"
    suite = ElementTree.Element(
        "testsuite", name="logforensics analyze", tests="1", failures=str(int(failed)), errors="0", skipped="0"
    )
    case = ElementTree.SubElement(suite, "testcase", classname=f"logforensics.{page.category}", name=name)
    if failed:
        failure = ElementTree.SubElement(case, "failure", type=page.category, message=page.headline)
        failure.text = "\n".join(_told(page))
    return document(suite)


def document(suite: ElementTree.Element) -> str:
    """Return a test suite as a JUnit file."""
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _told(page: Page) -> list[str]:
    """What a person reads below the red cross. The page's texts hold no character that XML cannot."""
    sure = _("Confidence: {confidence}").format(confidence=page.confidence_name)
    lines = [f"{page.status_words}: {page.category}, {page.phase_words}. {sure}."]
    lines += page.explanation
    for quote in page.evidence:
        lines += ["", *_quoted(quote)]
    if page.remedies:
        lines += ["", f"{_('What to do')}: {page.remedies[0].title}"]
        lines += [f"{number}. {step}" for number, step in enumerate(page.remedies[0].steps, 1)]
    return lines + [f"{_('Missing')}: {text}" for text in page.missing]


def _quoted(quote: Quote) -> list[str]:
    about = " ".join(filter(None, (quote.place, quote.who and f"({quote.who})", quote.time)))
    lines = [f"{'>' if line.hit else ' '} {line.number:>{quote.digits}} | {line.text}" for line in quote.lines]
    return [about, *(lines or [f"  {quote.text}"])]
