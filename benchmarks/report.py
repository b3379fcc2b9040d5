"""How large is the HTML report of a large run, and how long until it answers in a browser?

    python benchmarks/report.py [--runs 5] [--ranks 64 1024 4096]

Builds reports of made-up runs, opens each from disk in a fresh page of headless Chromium and reads from the page
itself when its scripts were done, since the navigation began. Needs the dev extra and a Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from render_samples import fleet  # noqa: E402 - the samples live with the tests
from report_browser import chromium  # noqa: E402

from logforensics.render.html import to_html  # noqa: E402

_CLICK = "(button) => { const begun = performance.now(); button.click(); return performance.now() - begun; }"


def main() -> None:
    """Print one line a size: bytes, seconds to write, milliseconds to interactive, and to every rank unfolded."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--ranks", type=int, nargs="+", default=[64, 1024, 4096])
    chosen = options.parse_args()
    print(f"{'ranks':>6} {'report':>9} {'written in':>11} {'interactive (median, worst)':>28} {'every rank':>11}")
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        for ranks in chosen.ranks:
            analysis = fleet(ranks)
            begun = time.perf_counter()
            html = to_html(analysis)
            written = time.perf_counter() - begun
            path = Path(folder) / f"{ranks}.html"
            path.write_text(html, encoding="utf-8")
            ready, unfolded = zip(*(_measure(browser, path) for _ in range(chosen.runs)), strict=True)
            median, worst = statistics.median(ready), max(ready)
            shown = f"{median:.0f} ms, {worst:.0f} ms"
            each = f"{statistics.median(unfolded):.0f} ms"
            print(f"{ranks:>6} {len(html) / 1e6:>6.2f} MB {written:>9.2f} s {shown:>28} {each:>11}")


def _measure(browser, path: Path) -> tuple[float, float]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        ready = float(page.evaluate("document.documentElement.dataset.ready"))
        button = page.query_selector('[data-lanes="each"]')
        unfolded = 0.0
        if button is not None:
            unfolded = page.evaluate(_CLICK, button)
        return ready, unfolded
    finally:
        page.close()


if __name__ == "__main__":
    main()
