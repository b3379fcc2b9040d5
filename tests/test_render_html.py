"""The HTML report: one file, no script, nothing fetched, log text inert."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError
from render_samples import hostile, huge, ordinary

from logforensics.render.html import environment, page_html, to_html
from logforensics.render.view import build_page, fate_rows

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Tags(HTMLParser):
    """Collects tags, attributes and text, and checks that every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.mark.parametrize("make", [ordinary, huge, hostile])
def test_the_page_has_no_script_and_refers_to_nothing(make):
    tags = Tags(to_html(make())).tags

    assert not {"script", "link", "img", "iframe", "object", "form", "a", "base"} & {tag for tag, _ in tags}
    for tag, attributes in tags:
        assert not {"href", "src", "style", "action", "data", "srcset"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")]


def test_log_text_is_shown_as_text():
    html = to_html(hostile())
    page = Tags(html)

    assert "<script" not in html
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text and "49 {%" not in page.text
    assert "[bold red]boom[/bold red]" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)
    html.encode("utf-8")


def test_the_policy_allows_this_style_and_nothing_else():
    html = to_html(ordinary())
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()

    policy = next(a["content"] for t, a in Tags(html).tags if a.get("http-equiv") == "Content-Security-Policy")

    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "url(" not in style[1] and "@import" not in style[1]


def test_the_style_serves_dark_rooms_paper_and_phones():
    html = to_html(ordinary())

    for piece in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem", 'name="viewport"'):
        assert piece in html


def test_all_facts_of_the_verdict_are_on_the_page():
    text = Tags(to_html(ordinary())).text

    for piece in (
        "Rank 1 failed first",
        "user_exception",
        "in the middle of training",
        "rank 1 on node0",
        "high (the logs show it)",
        "logs/rank1.log:10-11",
        "10 min 00 s before",
        "the others wait",
        "stopped by the launcher",
        "ALLREDUCE number 100",
        "never entered: rank 1",
        "Read ValueError: boom",
        "echo 'ValueError: boom'",
        "no log of rank 7",
        "network_fabric on ranks 0, 2",
        "own-failure",
        "could not be read",
    ):
        assert piece in text, piece


def test_thousands_of_ranks_make_a_small_page():
    assert len(to_html(huge(4096))) < 60_000


def test_a_run_without_failure_makes_a_page_too():
    analysis = ordinary()
    verdict = analysis.verdict
    verdict.status, verdict.category, verdict.headline = "no_failure", "no_failure", "No failure found"
    verdict.evidence, verdict.remedies, verdict.ranks = [], [], []

    text = Tags(to_html(analysis)).text

    assert "No failure found" in text
    assert "First error of each rank" not in text


def test_an_undefined_name_in_the_template_is_an_error():
    assert environment().autoescape is True
    with pytest.raises(UndefinedError):
        environment().from_string("{{ page.nothing_of_the_kind }}").render(page=build_page(ordinary()))


def test_the_page_is_built_of_plain_values():
    page = build_page(ordinary())

    assert page_html(page) == to_html(ordinary())
    assert [row.fate for row in page.fates] == ["origin", "timed_out", "torn_down"]
    assert page.fates[1].ranks == "0, 2"
    assert page.fates[1].last_step == "41-42"
    assert page.fates[1].ended == "SIGABRT"
    assert page.exceptions[0].origin


def test_fates_beyond_the_limit_share_one_row():
    analysis = huge(100)
    for state in analysis.ranks:
        state.why = f"reason {state.rank}"

    rows = fate_rows(analysis.ranks)

    assert len(rows) < 20
    assert sum(row.count for row in rows) == 100
