"""The keys of the daemon's log, as docs/log.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs/log.md"


def documented_keys() -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text[text.index("## Keys") : text.index("## The mirror")]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
