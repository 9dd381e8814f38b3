"""The picture that `make picture` writes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from deploy.demo.load import WriteCounts
from deploy.demo.view import ViewState, save_picture
from tests.demo.test_watch import observation, row, rules


def test_the_picture_is_one_svg_file_without_references(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    names = {"binlog_client_name": "repl@db", "lag_seconds": 0.0}
    rows = {name: row("streaming", **names) for name in ("shop", "billing", "stock", "alone")}
    scene = ViewState("writing", observation(rows=rows), rules(), WriteCounts())
    save_picture(file, scene, [], "all 8 tables are equal")
    text = file.read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert "equal" in text and "shop" in text
    assert "url(http" not in text
