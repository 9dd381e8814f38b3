"""What `check` says of the front: consumers that clients can or cannot read, and files that are no certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.cli.front_check import FrontReport, examine_front
from dispatcher.settings.load import load_settings
from dispatcher.settings.model import Settings
from tests.cli.program import consumer, write

A, B = "a" * 16, "b" * 16
LISTEN = "front: {listen: '127.0.0.1:3307'}\n"
MYSQL, MARIADB = "9.7.4", "11.8.9-MariaDB-log"


def settings_of(folder: Path, *tokens: str, front: str = LISTEN) -> Settings:
    """Settings with the consumers `shop` and `crm` of servers, and `archive` of a folder."""
    (folder / "logs").mkdir(exist_ok=True)
    archive = f"{{files: {{path: {folder}/logs}}, databases: [shop]}}"
    consumers = (("shop", consumer(3306, "a")), ("crm", consumer(3308, "a")), ("archive", archive))
    file = write(folder, *consumers)
    text = file.read_text().replace("api: {", f"api: {{tokens: [{', '.join(tokens)}], ")
    file.write_text(text + front)
    return load_settings([file], environment={})


def test_without_the_section_nothing_is_said(tmp_path: Path) -> None:
    assert examine_front(settings_of(tmp_path, front=""), {}) == FrontReport()


def test_without_tokens_all_consumers_of_servers_are_served(tmp_path: Path) -> None:
    report = examine_front(settings_of(tmp_path), {"shop": [MYSQL], "crm": [MYSQL]})
    assert report.line == "front 127.0.0.1:3307: serves shop, crm"
    (of_folder,) = report.warnings
    assert "cannot read a folder" in of_folder and of_folder.endswith("(for consumers.archive)")


@pytest.mark.parametrize(
    ("tokens", "served", "without"),
    [
        ([f"{{token: {A}, consumers: all}}"], "shop, crm", []),
        ([f"{{token: {A}, consumers: [crm]}}"], "crm", ["shop"]),
        ([f"{{token: {A}, consumers: all, scopes: [metrics]}}"], "no consumer", ["shop", "crm"]),
        (
            [
                f"{{token: {A}, consumers: [shop, crm], scopes: [read]}}",
                f"{{token: {B}, consumers: [shop], scopes: [administer, read, acknowledge]}}",
            ],
            "shop",
            ["crm"],
        ),
    ],
)
def test_consumers_without_a_fitting_token_are_named(
    tokens: list[str], served: str, without: list[str], tmp_path: Path
) -> None:
    report = examine_front(settings_of(tmp_path, *tokens), {})
    assert report.line == f"front 127.0.0.1:3307: serves {served}"
    about = [warning for warning in report.warnings if "no token" in warning]
    assert len(about) == bool(without)
    names = ", ".join(f"consumers.{name}" for name in without)
    assert all(warning.endswith(f"(for {names})") for warning in about)


@pytest.mark.parametrize(("other", "mixed"), [(MYSQL, False), (MARIADB, True), ("", False)])
def test_two_kinds_of_servers_behind_one_front(other: str, mixed: bool, tmp_path: Path) -> None:
    versions = {"shop": [MYSQL], "crm": [other] if other else []}
    report = examine_front(settings_of(tmp_path), versions)
    about = [warning for warning in report.warnings if "greets" in warning]
    assert len(about) == mixed
    assert all("MySQL (shop) and MariaDB (crm)" in warning for warning in about)
