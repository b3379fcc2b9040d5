"""The HTML report: one file, nothing fetched, log text inert, every fact of the verdict in it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError
from render_samples import hostile, huge, ordinary

from logforensics.render.html import environment, to_html
from logforensics.render.view import build_page, fate_rows
from logforensics.resources import data_text

OURS = ("early.js", "vendor/echarts.min.js", "timeline_layout.js", "timeline.js", "report.js")
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
def test_the_page_refers_to_nothing_outside_itself(make):
    html = to_html(make())
    tags = Tags(html).tags
    ids = {attributes["id"] for _, attributes in tags if "id" in attributes}

    assert not {"link", "img", "iframe", "object", "embed", "base", "svg"} & {tag for tag, _ in tags}
    for tag, attributes in tags:
        assert not {"src", "style", "action", "data", "srcset"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")]
        if "href" in attributes:
            assert tag == "a" and (attributes["href"] or "")[1:] in ids and (attributes["href"] or "")[0] == "#"
    assert not re.search("https?://", "".join(re.findall("<(?:style|script).*?</(?:style|script)>", html, re.DOTALL)))


def test_no_id_is_used_twice():
    ids = [attributes["id"] for _, attributes in Tags(to_html(ordinary())).tags if "id" in attributes]

    assert len(ids) == len(set(ids))


def test_only_our_own_scripts_are_in_the_page_and_the_policy_names_them_all():
    html = to_html(hostile())
    scripts = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    policy = next(a["content"] for t, a in Tags(html).tags if a.get("http-equiv") == "Content-Security-Policy")
    allowed = re.search("script-src ([^;]*)", policy or "")

    assert scripts == [data_text("reports", name) for name in OURS]
    assert allowed is not None
    assert allowed[1].split() == [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts]
    assert "unsafe" not in (policy or "")


def test_the_vendored_script_needs_no_eval_and_says_whose_it_is():
    script = data_text("reports", "vendor/echarts.min.js")
    readme = data_text("reports", "vendor/README.md")
    version = re.search(r"Apache ECharts (\d+\.\d+\.\d+)", script[:2000])

    assert not re.search(r"\beval\(|new Function|\bFunction\(", script)
    assert version is not None and f"echarts@{version[1]}" in readme
    for name in re.findall(r"LICENSE\.\w+\.txt|NOTICE\.\w+\.txt", readme):
        assert data_text("reports", f"vendor/{name}")


def test_values_for_the_scripts_cannot_end_their_element():
    html = to_html(hostile())
    blocks = re.findall('<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)

    assert len(blocks) == 2
    for block in blocks:
        assert not set("<>&") & set(block)
        json.loads(block)


def test_log_text_is_shown_as_text():
    html = to_html(hostile())
    page = Tags(html)

    assert "<script>alert" not in html
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

    for piece in ("prefers-color-scheme: dark", "@media print", "max-width: 44rem", 'name="viewport"'):
        assert piece in html


def test_all_facts_of_the_verdict_are_on_the_page():
    text = Tags(to_html(ordinary())).text

    for piece in (
        "Rank 1 failed first",
        "user_exception",
        "in the middle of training",
        "rank 1 on node0",
        "high the logs show it",
        "logs/rank1.log:10-11",
        "10 min 00 s before",
        "the others wait",
        "stopped by the launcher",
        "ALLREDUCE number 100",
        "Never entered rank 1",
        "Read ValueError: boom",
        "echo 'ValueError: boom'",
        "no log of rank 7",
        "network_fabric on ranks 0, 2",
        "own-failure",
        "could not be read",
    ):
        assert piece in text, piece


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
