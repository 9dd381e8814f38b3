"""The section webhook: the url, the secret, the kinds of events, and settings that do not fit together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dispatcher.model.lifecycle_kinds import LIFECYCLE_KINDS
from dispatcher.settings.load import load_settings
from dispatcher.settings.model import Settings
from dispatcher.settings.webhook import WebhookSettings
from dispatcher.yaml_settings.validation import SettingsError, parse_section
from tests.support.webhook_receiver import new_secret

ROOT = Path(__file__).parents[2]
SECRET = new_secret("a")
CONSUMERS = "consumers: {a: {mysql: r@db, password: p, databases: [d]}}\n"


def parsed(**values: Any) -> WebhookSettings:
    return parse_section(WebhookSettings, {"secret": SECRET, **values}, "test")


def loaded(folder: Path, section: str) -> Settings:
    (folder / "d.yaml").write_text(f"{CONSUMERS}webhook: {section}\n", encoding="utf-8")
    (folder / "d.yaml").chmod(0o600)
    return load_settings([folder / "d.yaml"], environment={})


def test_the_defaults() -> None:
    settings = parsed(url="https://ops.example.com/hook?a=b")
    assert (settings.events, settings.max_queued_events, settings.tls.ca) == (None, 10_000, None)
    assert (settings.origin, settings.encrypted) == ("https://ops.example.com", True)
    assert settings.signing_key == b"a" * 32


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"url": "mqtt://h"}, "expected https://host/path or http://host/path"),
        ({"url": "https://h/a#b"}, "without '#'"),
        ({"url": "https://h/ä"}, "in ASCII"),
        ({"url": "https://h /a"}, "expected https://host/path"),
        ({"url": 5}, "expected https://host/path"),
        ({"url": "https:///a"}, "the host is missing"),
        ({"url": "https://h:70000/"}, "the port must be between 1 and 65535"),
        ({"url": "https://u:geheim@h/"}, "must not contain a user or password"),
        ({"url": "https://h", "secret": None}, "the secret is missing: set secret_file or secret"),
        ({"url": "https://h", "secret": "geheim"}, "expected whsec_ and the base64 of 24 to 64"),
        ({"url": "https://h", "secret": "whsec_geheim"}, "openssl rand -base64 32"),
        ({"url": "https://h", "secret": SECRET.removeprefix("whsec_")}, "expected whsec_"),
        ({"url": "http://h", "tls": {}}, "tls needs a url that begins with https://"),
        ({"url": "https://h", "events": []}, "events: must not be empty"),
        ({"url": "https://h", "events": ["gap", "gap"]}, "'gap' is listed twice"),
        ({"url": "https://h", "events": ["faild"]}, "there is no event 'faild'; did you mean 'failed'"),
        ({"url": "https://h", "max_queued_events": 0}, "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parsed(**values)
    assert message in str(raised.value) and "geheim" not in str(raised.value)


def test_the_secret_comes_from_a_file_and_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "secret").chmod(0o600)
    settings = loaded(tmp_path, "{url: 'https://h/', secret_file: secret}")
    assert settings.webhook is not None and settings.webhook.signing_key == b"a" * 32
    assert settings.secrets() == ("p", SECRET)
    assert SECRET not in repr(settings)
    assert settings.warnings == ()
    with pytest.raises(SettingsError, match="set either secret_file or secret, not both"):
        loaded(tmp_path, f"{{url: 'https://h/', secret_file: secret, secret: {SECRET}}}")


def test_http_to_another_machine_is_warned_about(tmp_path: Path) -> None:
    section = f"{{url: 'http://ops:8080/token', secret: {SECRET}}}"
    (warning,) = loaded(tmp_path, section).warnings
    assert warning.startswith(
        "webhook.url: the events go to http://ops:8080 unencrypted; use https"
    )
    for local in ("localhost", "127.0.0.1:9", "[::1]:9"):
        section = f"{{url: 'http://{local}/token', secret: {SECRET}}}"
        assert loaded(tmp_path, section).warnings == ()


def test_the_documentation_describes_every_kind() -> None:
    page = (ROOT / "docs/mqtt.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:daemon|connection|consumer)? ?\| (`.+?) \| ", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(LIFECYCLE_KINDS)
