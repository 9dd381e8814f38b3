"""What the view shows, and the picture that `make picture` writes."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from deploy.demo.load import WriteCounts
from deploy.demo.runner import Takeover
from deploy.demo.view import View, ViewState, save_picture
from deploy.demo.watch import Observation
from tests.demo.test_watch import observation, row, rules

NAMES = {"binlog_client_name": "repl@db", "lag_seconds": 0.0, "acknowledged": None}


def observed() -> Observation:
    rows = {name: row("streaming", **NAMES) for name in ("shop", "billing", "stock", "alone")}
    return observation(rows=rows)


def shown(seen: Observation | None, *, terminal: bool) -> str:
    """Returns what the view writes about one state under load, to a terminal or to a file."""
    console = Console(file=io.StringIO(), width=140, force_terminal=terminal, color_system=None)
    with View(console) as view:
        view.show(ViewState("writing", seen, rules(), WriteCounts(rows=7)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_picture_is_one_svg_file_without_references(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    scene = ViewState("writing", observed(), rules(), WriteCounts())
    save_picture(file, scene, [], "all 8 tables are equal")
    text = file.read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert "equal" in text and "shop" in text
    assert "url(http" not in text


@pytest.mark.parametrize(
    ("terminal", "memory"), [(False, "; {} 0 MB"), (True, "{}'s resident memory 0 MB")]
)
@pytest.mark.parametrize("leader", ["daemon", "daemon a", "daemon b"])
def test_the_view_shows_the_leader(terminal: bool, memory: str, leader: str) -> None:
    text = shown(replace(observed(), leader=leader), terminal=terminal)
    assert memory.format(leader) in text and "no daemon leads" not in text


@pytest.mark.parametrize("terminal", [False, True])
def test_the_view_says_that_no_daemon_leads(terminal: bool) -> None:
    text = shown(None, terminal=terminal)
    assert "7 rows written" in text and "no daemon leads" in text


def test_the_result_says_who_led_and_how_long_nobody_did() -> None:
    assert str(Takeover("daemon a", "daemon b", 12.51, 3.98)) == (
        "Daemon a led until it was killed with SIGKILL, 12.5 s after the load had begun; 4.0 s later daemon b led."
    )
