"""The shipped settings files are valid and complete."""

from __future__ import annotations

import re
from pathlib import Path

from dispatcher.settings.load import load_settings

ROOT = Path(__file__).parents[2]


SECRETS = {"REPL_PASSWORD": "r", "AUDIT_PASSWORD": "a"}


def test_the_shipped_files_are_valid() -> None:
    short = load_settings([ROOT / "config" / "dispatcher.yaml"], {}, SECRETS)
    long = load_settings([ROOT / "config" / "dispatcher.example.yaml"], {}, SECRETS)
    assert [*short.consumers, "archive"] == list(long.consumers)
    assert list(short.consumers) == ["shop", "billing", "audit"]
    assert long.consumers["audit"] == short.consumers["audit"]


def test_the_example_shows_every_setting_with_its_default() -> None:
    """Uncommented or not, each name of the models stands in the file."""
    text = (ROOT / "config" / "dispatcher.example.yaml").read_text()
    loaded = load_settings([ROOT / "config" / "dispatcher.example.yaml"], {}, SECRETS)
    sections = [*loaded.consumers.values(), loaded.api, loaded.state, loaded.log]
    archive = loaded.consumers["archive"].files
    assert archive is not None and archive.follow
    for section in [*sections, loaded.consumers["shop"].tls, archive]:
        for name in type(section).model_fields:
            assert re.search(rf"\b{name}\b", text), name
    default = load_settings([ROOT / "config" / "dispatcher.yaml"], {}, SECRETS)
    assert (loaded.api, loaded.state, loaded.log) == (default.api, default.state, default.log)
