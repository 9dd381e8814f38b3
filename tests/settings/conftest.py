"""Loads settings from YAML texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.settings.load import load_settings
from dispatcher.settings.model import Settings
from dispatcher.yaml_settings.validation import SettingsError
from tests.support.settings_texts import Load


@pytest.fixture
def settings(tmp_path: Path) -> Load:
    """Load YAML texts as files a.yaml, b.yaml, ... of one folder."""

    def call(
        *texts: str,
        env: Mapping[str, str] | None = None,
        options: Mapping[str, tuple[str, Any]] | None = None,
    ) -> Settings:
        files = []
        for n, text in enumerate(texts):
            files.append(tmp_path / f"{chr(ord('a') + n)}.yaml")
            files[-1].write_text(text, encoding="utf-8")
        return load_settings(files, options, env or {})

    return call


@pytest.fixture
def wrong(settings: Load, tmp_path: Path) -> Callable[..., list[str]]:
    """The findings, with the folder left out of their files' names."""

    def call(*texts: str, **sources: Any) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            settings(*texts, **sources)
        error = caught.value
        assert error.kind is ErrorKind.SETTINGS and isinstance(error, UserError)
        return [line.replace(f"{tmp_path}/", "") for line in str(error).splitlines()]

    return call
