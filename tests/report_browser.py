"""A real browser for the tests and the benchmark of the HTML report: whatever Chromium the machine has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_path() -> str | None:
    """Return where a Chromium is, None when there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[object]:
    """Start a headless Chromium and give playwright's browser; it ends with the block."""
    from playwright.sync_api import sync_playwright

    # a container's root cannot have Chromium's sandbox; the pages opened here are our own files
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()
