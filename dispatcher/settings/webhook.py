"""The settings of the webhook: the address to which the daemon sends its events, and the secret that signs them.
docs/webhook.md describes the requests."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from dispatcher.model.lifecycle_kinds import LIFECYCLE_KINDS
from dispatcher.yaml_settings.section import SettingsSection, secret_of
from dispatcher.yaml_settings.validation import suggestion
from dispatcher.yaml_settings.values import (
    NameList,
    ReadableFile,
    SecretFile,
    WholeNumber,
    WrittenAs,
    is_loopback,
    split_host_port,
)

SECRET_PREFIX = "whsec_"  # noqa: S105 - of the Standard Webhooks specification
_KEY_BYTES_MIN, _KEY_BYTES_MAX = 24, 64
_PORTS = {"http": 80, "https": 443}
_CHARACTERS = re.compile(r"[!-~]+\Z")
_MAKE = 'make one with: echo "whsec_$(openssl rand -base64 32)"'


def _read_url(value: Any) -> str:
    """Raises ValueError; the text may contain a password, so no message repeats it."""
    scheme, slashes, rest = value.partition("://") if isinstance(value, str) else ("", "", "")
    if not slashes or scheme not in _PORTS or not _CHARACTERS.match(rest) or "#" in rest:
        raise ValueError("expected https://host/path or http://host/path, in ASCII, without '#'")
    address = re.split(r"[/?]", rest, maxsplit=1)[0]
    if "@" in address:
        what = "must not contain a user or password"
        raise ValueError(f"{what}; the receiver verifies the signature of each request instead")
    split_host_port(address, _PORTS[scheme])
    return str(value)


def _key_of(secret: str) -> bytes:
    encoded = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if encoded == secret or not _KEY_BYTES_MIN <= len(key) <= _KEY_BYTES_MAX:
        limits = f"{_KEY_BYTES_MIN} to {_KEY_BYTES_MAX} bytes"
        raise ValueError(f"expected whsec_ and the base64 of {limits}; {_MAKE}")
    return key


class WebhookTlsSettings(SettingsSection):
    """The receiver's certificate and name are always verified."""

    ca: ReadableFile | None = Field(
        default=None,
        description="The authority that signed the receiver's certificate; the default is the system's authorities",
    )


class WebhookSettings(SettingsSection):
    """The receiver of the daemon's events."""

    url: Annotated[str, BeforeValidator(_read_url), WrittenAs("`https://host/path`")] = Field(
        description="The address to which the daemon sends each event by a POST"
    )
    secret: SecretStr | None = Field(
        default=None,
        description="The secret that signs each request: `whsec_` and the base64 of 24 to 64 bytes",
    )
    secret_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the secret"
    )
    events: NameList | None = Field(
        default=None,
        min_length=1,
        description="The [kinds of events](mqtt.md#events) that are sent; the default is all kinds",
    )
    tls: WebhookTlsSettings = WebhookTlsSettings()
    max_queued_events: WholeNumber = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description=(
            "Largest number of events that wait for the receiver; beyond this limit the daemon drops the oldest"
        ),
    )

    @field_validator("events")
    @classmethod
    def _are_known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for kind in value or ():
            if kind not in LIFECYCLE_KINDS:
                what = f"there is no event {kind!r}{suggestion(kind, LIFECYCLE_KINDS)}"
                raise ValueError(f"{what}; the kinds are {', '.join(LIFECYCLE_KINDS)}")
        return value

    @field_validator("secret", "secret_file")
    @classmethod
    def _is_a_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _key_of(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.secret is None and self.secret_file is None:
            raise ValueError(f"the secret is missing: set secret_file or secret; {_MAKE}")
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("set either secret_file or secret, not both")
        if "tls" in self.model_fields_set and not self.encrypted:
            raise ValueError("tls needs a url that begins with https://")
        return self

    @property
    def secret_text(self) -> str:
        """The secret, from `secret` or `secret_file`."""
        return secret_of(self.secret, self.secret_file)

    @property
    def signing_key(self) -> bytes:
        return _key_of(self.secret_text)

    @property
    def encrypted(self) -> bool:
        return self.url.startswith("https:")

    @property
    def loopback(self) -> bool:
        return is_loopback(urlsplit(self.url).hostname or "")

    @property
    def origin(self) -> str:
        """`scheme://host:port` for messages. The path of the url may contain a token, so no message contains it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.encrypted or self.loopback:
            return ()
        return (
            f"webhook.url: the events go to {self.origin} unencrypted; use https:// and set webhook.tls.ca if the"
            " receiver's authority is not one of the system's",
        )
