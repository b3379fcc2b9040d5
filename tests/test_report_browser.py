"""The HTML report in a real browser: silent, inert, usable by mouse, keyboard and without scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from render_samples import HOSTILE, event, fleet, hostile, ordinary
from report_browser import chromium, chromium_path

from logforensics.render.html import to_html

pytest.importorskip("playwright", reason="the dev extra brings playwright")
pytestmark = pytest.mark.skipif(chromium_path() is None, reason="no Chromium on the PATH to open the report with")

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
# Where on the screen the chart shows the mark of a role.
MARK = """(role) => {
  const box = document.getElementById("chart"), chart = echarts.getInstanceByDom(box);
  const marks = JSON.parse(document.getElementById("timeline-data").textContent);
  const series = chart.getOption().series.find((one) => one.id === "marks");
  const wanted = marks.marks.find((mark) => marks.roles[mark[2]] === role);
  const place = series.data.find(([x]) => Math.abs(x - (marks.start + wanted[1] / 1000)) < 0.01);
  const [x, y] = chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, place), area = box.getBoundingClientRect();
  return [area.left + x, area.top + y];
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write each report once: name -> address of the file."""
    folder = tmp_path_factory.mktemp("reports")
    made: dict[str, str] = {}

    def address(name: str, make) -> str:
        if name not in made:
            path = folder / f"{name}.html"
            path.write_text(to_html(make()), encoding="utf-8")
            made[name] = path.as_uri()
        return made[name]

    return address


class Opened:
    """A page with everything it said and asked for."""

    def __init__(self, browser, address: str, **context) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "offline": True, **context})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.refused: list[str | None] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("requestfailed", lambda request: self.refused.append(request.failure))
        self.page.goto(address)
        if context.get("java_script_enabled", True):
            self.page.wait_for_selector("html[data-ready]")

    def until(self, true: str) -> None:
        """Wait until an expression of the page is true; as a function, because the page forbids eval."""
        self.page.wait_for_function(f"() => {true}")


@pytest.fixture
def opened(browser, files):
    """Open a report; every page is closed in the end, and none may have said or asked for anything."""
    pages: list[Opened] = []

    def open_(name: str, make, **context) -> Opened:
        one = Opened(browser, files(name, make), **context)
        pages.append(one)
        return one

    yield open_
    for one in pages:
        one.context.close()
        assert one.said == []
        assert len(one.asked) == 1 and one.asked[0].startswith("file:///")


@pytest.mark.parametrize("make", [ordinary, hostile])
def test_it_opens_from_disk_silently_and_asks_for_nothing(opened, make):
    page = opened(make.__name__, make).page

    assert page.title()
    assert page.locator("#chart canvas").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_hostile_log_stays_text(opened):
    page = opened("hostile", hostile).page

    assert page.locator("main script, main img, main iframe, main object, main form:not(.filter)").count() == 0
    assert set(page.eval_on_selector_all("a", "links => links.map((link) => link.getAttribute('href')[0])")) == {"#"}
    heading = page.locator("h1").inner_text()
    assert "<script>alert(1)</script>" in heading and "{{ 7*7 }}" in heading
    assert "\u202e" in HOSTILE and "\\u202etxt.exe" in heading and "\\u200bzero" in heading
    text = page.locator("body").inner_text()
    assert not set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\u200d\ufeff\x00\x1b") & set(text)


def test_the_policy_stops_what_an_escaping_flaw_would_let_in(browser, files):
    one = Opened(browser, files("ordinary", ordinary))
    one.page.evaluate("""() => {
      for (const [tag, name, value] of [["img", "src", "https://example.org/x.png"], ["script", "text", "self.run = 1"]]) {
        const part = document.createElement(tag);
        try { part[name] = value; } catch (error) { self.refused = (self.refused || 0) + 1; }
        document.body.append(part);
      }
      try { document.body.innerHTML = "<b>x</b>"; } catch (error) { self.refused = (self.refused || 0) + 1; }
    }""")

    assert one.page.evaluate("[self.run, self.refused]") == [None, 2]
    assert one.refused == ["csp"]
    one.context.close()


def test_zoom_changes_what_the_timeline_shows(opened):
    page = opened("ordinary", ordinary).page
    shown = page.locator("#chart-range")
    whole = shown.inner_text()

    page.click('[data-chart="in"]')
    near = shown.inner_text()
    page.focus("#chart")
    page.keyboard.press("0")

    assert whole.startswith("Showing ") and near != whole
    assert shown.inner_text() == whole

    page.locator("#chart").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.wait_for_function("(whole) => document.getElementById('chart-range').textContent !== whole", arg=whole)


def test_a_mark_tells_on_hover_and_leads_to_the_evidence_on_click(opened):
    one = opened("ordinary", ordinary)
    page = one.page
    page.locator("#chart").scroll_into_view_if_needed()
    spot = page.evaluate(MARK, "cause")

    page.mouse.move(*spot)
    tip = page.locator("#chart-tip")
    tip.wait_for(state="visible")

    assert "rank 1" in tip.inner_text() and "ValueError: boom" in tip.inner_text()
    assert "logs/rank1.log:10" in tip.inner_text()

    page.mouse.click(*spot)
    one.until("location.hash === '#evidence-1'")
    assert page.evaluate("document.activeElement.id") == "evidence-1"


def test_the_keyboard_reaches_every_mark(opened):
    one = opened("ordinary", ordinary)
    page = one.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"

    page.focus("#chart")
    page.keyboard.press("ArrowRight")
    told = [page.locator("#chart-aloud").inner_text()]
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        told.append(page.locator("#chart-aloud").inner_text())
    page.keyboard.press("Enter")

    assert "rank 1" in told[0] and "rank 0" in told[1] and "rank 2" in told[2]
    one.until("location.hash.startsWith('#event-')")


def test_by_order_shows_what_has_no_time(opened):
    def untimed():
        analysis = ordinary()
        for one in analysis.events:
            one.time_us = None
        return analysis

    page = opened("untimed", untimed).page

    assert page.locator('[data-axis="order"]').get_attribute("aria-pressed") == "true"
    assert page.locator('[data-axis="clock"]').is_disabled()
    assert "carry no time" in page.locator("#timeline").inner_text()


def test_a_large_run_folds_and_unfolds(opened):
    page = opened("fleet", lambda: fleet(1024)).page
    lanes = "echarts.getInstanceByDom(document.getElementById('chart')).getOption().yAxis[0].data.length"
    folded = page.evaluate(lanes)

    page.click('[data-lanes="each"]')

    assert folded < 12
    assert page.evaluate(lanes) >= 1024
    assert page.locator(".node.has-origin").count() == 1
    assert "of 9,318 events" in page.locator("#timeline").inner_text()


def test_the_event_table_is_searched_and_filtered(opened):
    one = opened("fleet64", lambda: fleet(64))
    page = one.page
    rows = "document.querySelectorAll('tr.event:not([hidden])').length"
    assert page.evaluate(rows) == 50

    page.fill('.filter [name="text"]', "out of memory")
    one.until(f"{rows} === 1")
    page.fill('.filter [name="text"]', "")
    page.fill('.filter [name="rank"]', "3")
    one.until(f"{rows} === 9")
    page.click('[data-filter-role="progress"]')
    one.until(f"{rows} === 4")
    # a link to a row that the filter hides shows it again
    page.click("#first-errors .origin a")
    target = page.evaluate("location.hash")
    assert page.locator(target).is_visible()


def test_the_theme_is_chosen_by_system_and_button(opened):
    page = opened("ordinary", ordinary, color_scheme="dark").page
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)

    page.click(".theme")
    assert "light" in page.locator(".theme").inner_text()
    light = page.evaluate(paper)
    page.click(".theme")

    assert light != dark
    assert page.evaluate(paper) == dark


def test_a_command_is_copied_whole(opened):
    one = opened("ordinary", ordinary, permissions=["clipboard-read", "clipboard-write"])
    page = one.page
    page.locator(".copy").first.click()
    one.until("document.querySelector('.copy').textContent === 'Copied'")

    assert page.evaluate("navigator.clipboard.readText()") == "echo 'ValueError: boom'"


def test_without_scripts_every_fact_is_there(opened):
    page = opened("ordinary", ordinary, java_script_enabled=False).page
    text = page.locator("main").inner_text()

    for piece in ("Rank 1 failed first", "echo 'ValueError: boom'", "10 min 00 s before", "waited until the timeout"):
        assert piece in text
    assert page.locator("tr.event").count() == 3
    assert page.locator("tr.event").last.is_visible()
    assert not page.locator("button, input, #chart-panel").locator("visible=true").count()
    assert "needs JavaScript" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "make"), [("ordinary", ordinary), ("fleet16", lambda: fleet(16))])
def test_it_is_accessible(opened, scheme, name, make):
    page = opened(name, make, color_scheme=scheme).page
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], elementRef: false})")

    told = [
        f"{item['id']}: {node['target']} {node['failureSummary']}"
        for item in found["violations"]
        for node in item["nodes"]
    ]
    assert told == []


def test_a_phone_needs_no_sideways_scrolling(opened):
    page = opened(
        "fleet64", lambda: fleet(64), viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    ).page

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("#chart").scroll_into_view_if_needed()
    page.touchscreen.tap(*page.evaluate(MARK, "cause"))
    page.locator("#chart-tip a").wait_for(state="visible")


@pytest.mark.parametrize(("ranks", "most"), [(64, 2_500_000), (1024, 2_500_000), (4096, 8_000_000)])
def test_a_large_run_makes_a_file_that_can_be_attached(ranks, most):
    assert len(to_html(fleet(ranks)).encode()) < most


def test_a_flood_of_different_lines_is_bounded_and_says_so():
    analysis = fleet(64)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    for number in range(8**4 * 2):
        said = " ".join(words[number >> shift & 7] for shift in (0, 3, 6, 9, 12))
        analysis.events.append(
            event(1, f"{said} " * 60, 700 + number / 1000, role="noise", event_id=len(analysis.events))
        )
    html = to_html(analysis)

    assert len(html.encode()) < 2_500_000
    assert "Left out for room" in html
