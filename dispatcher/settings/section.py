"""Used by all sections of the settings: the frozen base model, addresses, and secrets, which a person sets as text or
as a file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, SecretStr

from dispatcher.settings.values import is_loopback, split_host_port


class SettingsSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


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


def secret_of(inline: SecretStr | None, content: SecretStr | None) -> str:
    """Returns the secret, from the key that is set: the secret itself, or the content of its file."""
    secret = inline if inline is not None else content
    assert secret is not None
    return secret.get_secret_value()
