"""The daemon warns of secrets that other users can read, and of passwords that an impostor of a server can learn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatcher.settings.exposure import password_warnings
from dispatcher.settings.load import load_settings
from tests.support.settings_texts import MINIMAL, Load

INLINE = MINIMAL


BY_VARIABLE = INLINE.replace('"geheim"', '"${REPL}"')


BY_FILE = INLINE.replace('password: "geheim"', "password_file: secret")


@pytest.fixture
def warnings_at() -> Iterator[Callable[[str, int, int], tuple[str, ...]]]:
    """The warnings of one settings file with `text`, in a folder that every user may enter.

    `mode`: of the settings file; `secret_mode`: of the file `secret` beside it. `FOLDER` stands for the folder.
    """
    with tempfile.TemporaryDirectory(prefix="settings-") as name:
        folder = Path(name)
        folder.chmod(0o755)

        def call(text: str, mode: int, secret_mode: int) -> tuple[str, ...]:
            file, secret = folder / "a.yaml", folder / "secret"
            file.write_text(text)
            file.chmod(mode)
            secret.write_text("geheim")
            secret.chmod(secret_mode)
            loaded = load_settings([file], None, {"REPL": "geheim"})
            return tuple(warning.replace(name, "FOLDER") for warning in loaded.warnings)

        yield call


WarningsAt = Callable[[str, int, int], tuple[str, ...]]


def test_a_readable_settings_file_with_a_password_gives_a_warning(
    warnings_at: WarningsAt,
) -> None:
    assert warnings_at(INLINE, 0o644, 0o600) == (
        "FOLDER/a.yaml:2: every user of this machine can read the secret in this file; make the daemon's user its"
        " owner and run: chmod 600 FOLDER/a.yaml",
    )


def test_a_readable_settings_file_with_a_token_gives_a_warning(warnings_at: WarningsAt) -> None:
    text = BY_VARIABLE + "api: {tokens: [{token: sixteen-letters-x, consumers: all}]}\n"
    (warning,) = warnings_at(text, 0o644, 0o600)
    assert warning.startswith("FOLDER/a.yaml:3: ") and "sixteen" not in warning


def test_a_readable_secret_file_gives_a_warning(warnings_at: WarningsAt) -> None:
    (warning,) = warnings_at(BY_FILE, 0o644, 0o644)
    assert warning.startswith("FOLDER/a.yaml:2: every user of this machine can read FOLDER/secret;")
    assert warning.endswith("chmod 600 FOLDER/secret")


@pytest.mark.parametrize(
    ("text", "mode", "secret_mode"),
    [(INLINE, 0o640, 0o600), (BY_VARIABLE, 0o644, 0o600), (BY_FILE, 0o644, 0o640)],
)
def test_secrets_that_others_cannot_read_give_no_warning(
    warnings_at: WarningsAt, text: str, mode: int, secret_mode: int
) -> None:
    assert warnings_at(text, mode, secret_mode) == ()


def test_a_file_in_a_private_folder_gives_no_warning(settings: Load, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    loaded = settings(INLINE)
    (tmp_path / "a.yaml").chmod(0o644)
    assert loaded.warnings == settings(INLINE).warnings == ()


@pytest.mark.parametrize(
    ("host", "tls", "what"),
    [
        ("db1", "", "tls.mode preferred does not verify the server's identity"),
        ("db1,localhost", "", "tls.mode preferred does not verify the server's identity"),
        ("10.0.0.1", "{mode: required}", "tls.mode required does not verify the server's identity"),
        (
            "db1",
            "{mode: disabled, allow_public_key_retrieval: true}",
            "tls.allow_public_key_retrieval accepts an unverified key",
        ),
        ("db1", "{mode: disabled}", ""),
        ("db1", "{mode: verify_ca}", ""),
        ("db1", "{mode: verify_identity}", ""),
        ("localhost", "", ""),
        ("127.0.0.1:3307,[::1]:3308", "{mode: required}", ""),
    ],
)
def test_a_connection_without_a_verified_server_gives_a_warning(
    settings: Load, host: str, tls: str, what: str
) -> None:
    consumer = f"{{mysql: 'u@{host}', password: p, databases: [d], tls: {tls or '{}'}}}"
    loaded = settings(f"consumers: {{one: {consumer}, two: {consumer}}}")
    warnings = password_warnings(loaded)
    assert len(warnings) == bool(what)
    for warning in warnings:
        assert what in warning and "consumers.one, consumers.two" in warning
        assert "verify_identity" in warning


@pytest.mark.parametrize(("host", "risks"), [("db1", 1), ("127.0.0.1", 0)])
def test_the_database_of_the_state_is_treated_as_a_source(
    settings: Load, host: str, risks: int
) -> None:
    consumer = "{mysql: u@localhost, password: p, databases: [d]}"
    state = f"{{mysql: 's@{host}/state', password: p}}"
    warnings = password_warnings(settings(f"consumers: {{one: {consumer}}}\nstate: {state}"))
    assert len(warnings) == risks
    for warning in warnings:
        assert (
            warning.startswith("s@db1:3306/state: tls.mode preferred") and "(for state)" in warning
        )
