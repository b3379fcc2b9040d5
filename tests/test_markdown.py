"""The Markdown summary: short, complete enough to act on, and log text that stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from render_samples import HOSTILE, event, hostile, huge, ordinary
from typer.testing import CliRunner

from logforensics.cli import app
from logforensics.model import Remedy
from logforensics.render.markdown import code, fence, prose, to_markdown
from logforensics.render.view import build_page

# What a log could say to GitHub, GitLab or a chat.
ATTACKS = [
    "thanks @octocat and @org/team",
    "fixes #123, see GH-45 and org/repo#6",
    "reverts deadbeefcafe0123456789abcdefdeadbeefcafe",
    "```\n</details>\n# Heading",
    "a ` b `` c ``` d ```` e",
    "`",
    "</details><script>alert(1)</script><img src=x onerror=y>",
    "<!-- comment --> <!channel> <@U123>",
    "[click](javascript:x) ![image](http://x/y.png) <http://x>",
    "http://evil.example www.evil.example me@evil.example",
    "**bold** *it* __b__ _i_ ~~s~~ $x^2$ $$y$$ :smile: :+1:",
    "&lt;b&gt; &#64;octocat \\@octocat \\# x",
    "| a | b |\n|---|---|",
    "- item",
    "1. item",
    "# heading",
    "> quote",
    "=====",
    "-----",
    "+ item",
    "    indented",
    "[x]: http://evil.example",
    "[^1]: note",
    "@",
    "",
]
_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def outside_code(text: str) -> str:
    """The text that a renderer would look for mentions and numbers in, line by line."""
    found = []
    for token in _PARSER.parse(text):
        found += [child.content for child in token.children or () if child.type == "text"]
    return "\n".join(found)


def kinds(text: str) -> set[str]:
    return {child.type for token in _PARSER.parse(text) for child in (token, *(token.children or ()))}


def with_text(text: str):
    """An analysis with ``text`` in every place that a log can reach."""
    analysis = ordinary()
    verdict = analysis.verdict
    verdict.headline, verdict.explanation, verdict.missing = text, [text], [text]
    verdict.nodes = [text]
    verdict.remedies = [Remedy("x", text, [text], [text]), Remedy("y", text)]
    verdict.evidence = [replace(item, text=text, source=text, node=text) for item in verdict.evidence]
    analysis.excerpts = {0: [(10, text), (11, text)]}
    analysis.first_exceptions = [event(rank, text, rank, event_id=rank, source=text, node=text) for rank in range(3)]
    return analysis


@pytest.mark.parametrize("make", [ordinary, huge, hostile])
def test_it_is_under_sixty_lines(make):
    assert to_markdown(make()).count("\n") < 60


def test_the_longest_verdict_is_under_sixty_lines():
    analysis = ordinary()
    verdict = analysis.verdict
    verdict.explanation = verdict.missing = [f"sentence {number}" for number in range(30)]
    verdict.evidence = [replace(verdict.evidence[0], line=number) for number in range(9, 40)]
    verdict.remedies = [Remedy(str(number), f"do {number}", ["step"] * 9, ["command"] * 9) for number in range(5)]
    analysis.excerpts = {0: [(number, f"line {number}") for number in range(1, 60)]}
    analysis.first_exceptions = [event(rank, f"{chr(65 + rank)}Error", rank) for rank in range(40)]

    text = to_markdown(analysis)

    assert text.count("\n") < 60
    assert "and 28 more" in text


def test_it_says_what_a_person_needs():
    text = to_markdown(ordinary())

    assert text.startswith("### Rank 1 failed first: it raised an exception\n")
    for piece in (
        "**Diagnosed** · `user_exception` · in the middle of training · rank 1 (`node0`)",
        "**confidence: high** (the logs show it)",
        "<details><summary>Evidence</summary>",
        "`logs/rank1.log:10-11` rank 1 on node0 · 20:26:40.000",
        "ValueError: boom (10 min 00 s before)",
        "**What to do: Fix ValueError: boom**",
        "2. Rerun",
        "- no log of rank 7: ValueError: boom",
    ):
        assert piece in text, piece


def test_many_first_errors_are_folded_and_few_are_not():
    few = ordinary()
    many = ordinary()
    many.first_exceptions = [event(rank, f"{chr(65 + rank)}Error", rank) for rank in range(9)]

    assert "<summary>First error of each rank</summary>" not in to_markdown(few)
    assert "<summary>First error of each rank</summary>" in to_markdown(many)


def test_the_origin_is_among_the_errors_that_are_shown():
    analysis = ordinary()
    analysis.first_exceptions = [event(rank, f"{chr(65 + rank)}Error", rank) for rank in (*range(2, 12), 1)]

    assert "> rank 1 " in to_markdown(analysis)


def test_no_failure_is_short():
    analysis = ordinary()
    analysis.verdict = replace(
        analysis.verdict, status="no_failure", category="no_failure", ranks=[], nodes=[], headline="No failure found",
        explanation=[], evidence=[], remedies=[], missing=[],
    )  # fmt: skip

    text = to_markdown(analysis)

    assert text.count("\n") == 3
    assert text.startswith("### No failure found\n\n**No failure** · `no_failure` · **confidence")


@pytest.mark.parametrize("attack", [*ATTACKS, HOSTILE])
def test_log_text_stays_text(attack):
    text = to_markdown(with_text(attack))
    plain = outside_code(text)

    assert not re.search(r"(?<!\w)@\w|#\d|GH-\d|://|www\.|[<>$|]|\b[0-9a-f]{7,40}\b", plain)
    assert not re.search(r":(?!\d\d:)[\w+-]+:", plain)
    assert kinds(text) <= {
        "heading_open", "heading_close", "inline", "text", "paragraph_open", "paragraph_close", "strong_open",
        "strong_close", "code_inline", "html_block", "fence", "bullet_list_open", "bullet_list_close",
        "ordered_list_open", "ordered_list_close", "list_item_open", "list_item_close", "softbreak",
    }  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_page_around_it_keeps_its_shape(attack):
    tokens = _PARSER.parse(to_markdown(with_text(attack)))
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)

        def handle_endtag(self, tag):
            tags.append("/" + tag)

    for token in tokens:
        if token.type == "html_block":
            Tags().feed(token.content)

    assert tags == ["details", "summary", "/summary", "/details"]
    assert [token.tag for token in tokens if token.type == "heading_open"] in (["h3"], [])


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from("`ab @#<>*_~[]()!:/\\.|&;$1-+=\"'"), max_size=40))
def test_prose_and_code_never_mean_anything(text):
    for rendered in (prose(text), code(text)):
        assert kinds(f"x {rendered} y") <= {"paragraph_open", "inline", "text", "code_inline", "paragraph_close"}
        assert not re.search(r"[@#<>*_~\[\]$|\\&`]", outside_code(f"x {rendered} y"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet=st.sampled_from("`~ab \t<"), max_size=12), max_size=5))
def test_nothing_closes_a_fence(lines):
    tokens = _PARSER.parse(fence(lines, "text") + "\nafter")

    assert tokens[0].type == "fence"
    assert tokens[0].content == "".join(line + "\n" for line in lines)
    assert tokens[-2].content == "after"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank 3 (of 4): it's 95 % done!", "rank 3 (of 4): it's 95 % done!"),
        ("set NCCL_DEBUG=INFO, then rerun", "set `NCCL_DEBUG=INFO`, then rerun"),
        ("at 20:15:00.125", "at 20:15:00.125"),
        ('see "a_b" and (c_d)', 'see "`a_b`" and (`c_d`)'),
        ("run #12 @me now", "run `#12 @me` now"),
        ("1. first", "`1.` first"),
        ("`", "`` ` ``"),
    ],
)
def test_only_words_that_could_mean_something_are_in_code(text, expected):
    assert prose(text) == expected


def test_the_template_shows_every_status():
    for status in ("diagnosed", "undetermined", "no_failure"):
        analysis = ordinary()
        analysis.verdict.status = status

        assert build_page(analysis).status_words in to_markdown(analysis)


def test_the_command_writes_it(tmp_path):
    (tmp_path / "rank0.log").write_text('Traceback (most recent call last):\n  File "x.py", line 1\nValueError: <b>\n')
    target = tmp_path / "out.md"

    shown = CliRunner().invoke(app, ["analyze", str(tmp_path / "rank0.log"), "--markdown", "-"])
    written = CliRunner().invoke(app, ["analyze", str(tmp_path / "rank0.log"), "--markdown", str(target)])

    assert shown.exit_code == written.exit_code == 0
    assert shown.stdout == target.read_text("utf-8")
    assert shown.stdout.startswith("### ")
    assert "What became of each rank" in written.stdout
