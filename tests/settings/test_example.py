"""The shipped settings files are valid and complete."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dispatcher.settings.front import FrontSettings
from dispatcher.settings.load import load_settings
from dispatcher.settings.mqtt import MqttSettings, MqttTlsSettings
from dispatcher.settings.webhook import WebhookSettings, WebhookTlsSettings
from tests.support.webhook_receiver import new_secret

ROOT = Path(__file__).parents[2]


SECRETS = {"REPL_PASSWORD": "r", "AUDIT_PASSWORD": "a"}


def test_the_shipped_files_are_valid() -> None:
    short = load_settings([ROOT / "config" / "dispatcher.yaml"], {}, SECRETS)
    long = load_settings([ROOT / "config" / "dispatcher.example.yaml"], {}, SECRETS)
    assert [*short.consumers, "archive"] == list(long.consumers)
    assert list(short.consumers) == ["shop", "billing", "audit"]
    assert long.consumers["audit"] == short.consumers["audit"]


def test_the_example_shows_every_setting_with_its_default() -> None:
    """The file contains each setting's name, also as a comment."""
    text = (ROOT / "config" / "dispatcher.example.yaml").read_text()
    loaded = load_settings([ROOT / "config" / "dispatcher.example.yaml"], {}, SECRETS)
    sections = [*loaded.consumers.values(), loaded.api, loaded.state, loaded.log]
    archive = loaded.consumers["archive"].files
    assert archive is not None and archive.follow
    for section in [*sections, loaded.consumers["shop"].tls, archive]:
        for name in type(section).model_fields:
            assert re.search(rf"\b{name}\b", text), name
    # These sections are comments: by default there is no broker and no webhook.
    for model in (MqttSettings, MqttTlsSettings, WebhookSettings, WebhookTlsSettings):
        for name in model.model_fields:
            assert re.search(rf"\b{name}\b", text), name
    default = load_settings([ROOT / "config" / "dispatcher.yaml"], {}, SECRETS)
    assert (loaded.api, loaded.state, loaded.log) == (default.api, default.state, default.log)


def test_the_section_front_of_the_example_has_every_key_with_its_default() -> None:
    text = (ROOT / "config" / "dispatcher.example.yaml").read_text(encoding="utf-8")
    section = text[text.index("# front:\n") : text.index("# Statuses and events")]
    values = yaml.safe_load(re.sub(r"^# ", "", section, flags=re.MULTILINE))["front"]
    assert values.keys() == FrontSettings.model_fields.keys()
    del values["tls"]  # files that do not exist here
    default = FrontSettings.model_validate({"listen": values["listen"]})
    assert FrontSettings.model_validate(values) == default


def test_the_section_mqtt_of_the_example_is_valid_with_its_defaults() -> None:
    text = (ROOT / "config" / "dispatcher.example.yaml").read_text(encoding="utf-8")
    section = text[text.index("# mqtt:\n") : text.index("# A signed POST")]
    values = yaml.safe_load(re.sub(r"^# ", "", section, flags=re.MULTILINE))["mqtt"]
    settings = MqttSettings.model_validate(values)
    minimal = {key: values[key] for key in ("url", "name", "user", "password")}
    assert settings.model_dump() == MqttSettings.model_validate(minimal).model_dump()


def test_the_section_webhook_of_the_example_is_valid_with_its_defaults() -> None:
    text = (ROOT / "config" / "dispatcher.example.yaml").read_text(encoding="utf-8")
    section = text[text.index("# webhook:\n") :]
    values = yaml.safe_load(re.sub(r"^# ", "", section, flags=re.MULTILINE))["webhook"]
    assert values["secret"] == "${WEBHOOK_SECRET}"
    values["secret"] = new_secret("a")
    settings = WebhookSettings.model_validate(values)
    minimal = {key: values[key] for key in ("url", "secret", "events")}
    assert settings.model_dump() == WebhookSettings.model_validate(minimal).model_dump()
