"""Defines what all sections of the settings use: the frozen base model, addresses, and secrets. A person sets a secret
as text or as a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr

from dispatcher.yaml_settings.values import is_loopback, split_host_port


class SettingsSection(BaseModel):
    """Unknown keys are errors; messages never contain the value."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    # Unknown keys that people write in this section, each with the advice that the error contains.
    instead: ClassVar[Mapping[str, str]] = {}


class HostPort(SettingsSection):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int) -> HostPort:
        host, port = split_host_port(text, default_port)
        return cls(host=host, port=port)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(value: Any) -> HostPort:
    """Parse the value of `api.listen`. Port 0 means any free port. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("expected text like 127.0.0.1:8085")
    return HostPort.parse(value, 8085)


def secret_of(inline: SecretStr | None, content: SecretStr | None) -> str:
    """Returns the secret, from the key that is set: the secret itself, or the content of its file."""
    secret = inline if inline is not None else content
    assert secret is not None
    return secret.get_secret_value()
