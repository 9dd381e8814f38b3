"""`settings show` and `settings reference` as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.program import call, consumer, write


def test_show_prints_origins_and_hides_the_password(tmp_path: Path) -> None:
    file = write(tmp_path, ("shop", consumer(1, "u")))
    shown = call("settings", "show", "--config", file)  # fails if it prints the password
    assert shown.returncode == 0
    assert f"consumers.shop.databases: [shop]  ({file}:2)\n" in shown.stdout
    assert f"consumers.shop.password: (hidden)  ({file}:2)\n" in shown.stdout
    assert "consumers.shop.on_purged: fail  (default)\n" in shown.stdout
    file.write_text(file.read_text().replace("databases", "databses"))
    wrong = call("settings", "show", "--config", file)
    assert wrong.returncode == 2 and "did you mean 'databases'?" in wrong.stderr


def test_reference_of_some_settings() -> None:
    shown = call("settings", "reference", "heartbeat")
    assert shown.stdout.startswith(
        "defaults.heartbeat_milliseconds  (number in milliseconds, 100 to 3600000, default 1000)\n"
    )
    (one,) = json.loads(call("settings", "reference", "heartbeat", "--json").stdout)
    assert one["unit"] == "milliseconds"
