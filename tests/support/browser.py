"""A headless Chromium from the system's packages, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str:
    """Returns the path of the installed browser. Raises RuntimeError if there is none."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise RuntimeError(f"no browser ({', '.join(_NAMES)}): run deploy/setup.sh chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser, without a window."""
    # Chromium refuses to sandbox for root. Containers often have a small /dev/shm.
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=options)
        try:
            yield browser
        finally:
            browser.close()
