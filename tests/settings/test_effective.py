"""The settings in effect name their origins, and hide secrets."""

from __future__ import annotations

from pathlib import Path

from dispatcher.settings.effective import effective_settings
from dispatcher.settings.load import read_tree, validated_settings
from tests.support.webhook_receiver import new_secret


def test_merged_settings_name_their_origins_and_hide_secrets(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(
        "defaults:\n"
        "  max_bytes_in_binlog_queue: 1MiB\n"
        "consumers:\n"
        "  shop: {mysql: u@h, password: geheim, databases: [shop], tls: {mode: disabled}}\n"
        f"  old: {{files: {{path: '{tmp_path}'}}, databases: [shop]}}\n"
        "api:\n"
        "  tokens: [{token: sehr-geheimes-token, consumers: all}]\n"
        "mqtt: {url: 'mqtt://broker', name: me}\n"
        f"webhook: {{url: 'https://h/', secret: {new_secret('a')}}}\n"
    )
    second.write_text("consumers:\n  shop:\n    databases: ['shop_*', crm]\n")
    environment = {"DISPATCHER__CONSUMERS__SHOP__ON_PURGED": "latest"}
    tree = read_tree([first, second], {"log.level": ("--log-level", "debug")}, environment)
    validated_settings(tree)
    shown = {each.path: (each.value, each.origin) for each in effective_settings(tree)}
    assert shown["consumers.shop.max_bytes_in_binlog_queue"] == ("1MiB", f"{first}:2")
    assert shown["consumers.shop.databases"] == ("[shop_*, crm]", f"{second}:3")
    assert shown["consumers.shop.on_purged"] == (
        "latest",
        "environment variable DISPATCHER__CONSUMERS__SHOP__ON_PURGED",
    )
    assert shown["consumers.old.on_purged"] == ("fail", "default")
    assert shown["consumers.shop.start"] == ("latest", "default")
    assert shown["consumers.shop.tls.mode"] == ("disabled", f"{first}:4")
    assert shown["consumers.old.files.follow"] == ("true", "default")
    assert shown["consumers.shop.mqtt.commits"] == ("false", "default")
    assert shown["log.level"] == ("debug", "--log-level")
    assert shown["consumers.shop.password"] == ("(hidden)", f"{first}:4")
    assert shown["api.tokens.0.token"] == ("(hidden)", f"{first}:7")
    assert shown["api.tokens.0.consumers"] == ("all", f"{first}:7")
    assert shown["mqtt.qos"] == ("1", "default")
    assert shown["webhook.secret"] == ("(hidden)", f"{first}:9")
    assert shown["webhook.max_queued_events"] == ("10000", "default")
    assert not any(path.startswith("front.") for path in shown)
    assert not {"consumers.old.tls.mode", "consumers.shop.files.follow"} & shown.keys()
    assert not [value for value, _ in shown.values() if "geheim" in value]


def test_only_the_keys_of_the_store_in_use_are_shown(tmp_path: Path) -> None:
    def shown(state: str) -> dict[str, str]:
        file = tmp_path / "a.yaml"
        source = "{mysql: u@h, password: p, databases: [shop]}"
        file.write_text(f"consumers: {{shop: {source}}}\nstate: {state}\n")
        rows = effective_settings(read_tree([file], {}, {}))
        return {row.path: row.value for row in rows if row.path.startswith("state.")}

    in_file = shown("{max_bytes_in_spill: 1}")
    in_database = shown("{mysql: u@h/state, password: geheim, tls: {mode: required}}")
    assert in_file["state.path"] == "/var/lib/binlog-dispatcher/state.db"
    assert not {"state.lease", "state.tls.mode"} & in_file.keys()
    assert "state.path" not in in_database
    assert in_database["state.mysql"] == "u@h/state"
    assert in_database["state.password"] == "(hidden)"
    assert in_database["state.tls.mode"] == "required"
    assert in_database["state.lease"] == "4"
