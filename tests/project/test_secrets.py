"""The search for secrets in all output finds a printed secret, and no other text."""

from __future__ import annotations

from pathlib import Path

from tests.support.secrets import leaks


def test_a_printed_secret_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "daemon1"
    folder.mkdir()
    (folder / "dispatcher.yaml").write_text(
        "a: &a {password: the-password, again: [*a], token_file: token, b: {token: short}}\n"
    )
    (folder / "token").write_text("the-token-of-a-file\n")
    (folder / "stderr").write_text("short the-passphrase\n")
    assert leaks(tmp_path) == []
    (folder / "job.log").write_text("login with the-password failed\n")
    assert leaks(tmp_path) == [f"{folder / 'job.log'}: the-password"]
    (folder / "stderr").write_text("the-token-of-a-file")
    assert len(leaks(tmp_path)) == 2
    # Remove the files, because the search at the end of the run would find them.
    (folder / "stderr").unlink()
    (folder / "job.log").unlink()
