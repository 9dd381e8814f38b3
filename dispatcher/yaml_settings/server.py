"""The settings of a MySQL or MariaDB server: its hosts and account, and TLS."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dispatcher.yaml_settings.section import HostPort, SettingsSection
from dispatcher.yaml_settings.values import PORT_RANGE, ReadableFile

SET_ELSEWHERE = "set password_file or password"


class MysqlSettings(SettingsSection):
    """`user@host:port`, or `user@host1:port,host2:port` for a failover list. The default port is 3306."""

    user: str
    addresses: tuple[HostPort, ...]  # the daemon tries them in this order

    @classmethod
    def parse(cls, value: Any) -> MysqlSettings:
        if not isinstance(value, str):
            raise ValueError("expected text like repl@db1:3306")
        user, at, hosts = value.rpartition("@")
        # The text may contain a password, so no message repeats it.
        if not at or not user:
            raise ValueError("expected user@host:port, such as repl@db1:3306")
        if user.startswith("mysql://"):
            raise ValueError("leave out mysql://; expected user@host:port, such as repl@db1:3306")
        if ":" in user:
            raise ValueError(f"must not contain a password; {SET_ELSEWHERE}")
        if "@" in user and "," in user:
            raise ValueError("write the user once, for all hosts: user@host1:port,host2:port")
        addresses: list[HostPort] = []
        for text in hosts.split(","):
            address = HostPort.parse(text.strip(), 3306)
            if address.port == 0:
                raise ValueError(PORT_RANGE)
            if address in addresses:
                raise ValueError(f"{address} is listed twice")
            addresses.append(address)
        return cls(user=user, addresses=tuple(addresses))


class MysqlTlsSettings(SettingsSection):
    """`ca` verifies the server, `cert` and `key` authenticate the daemon."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = Field(
        default="preferred", description="Use of TLS, with the values of MySQL's `--ssl-mode`"
    )
    ca: ReadableFile | None = Field(
        default=None,
        description=(
            "The authority that signed the server's certificate, for the two verify modes; the default is the "
            "system's authorities"
        ),
    )
    cert: ReadableFile | None = Field(
        default=None, description="The daemon's certificate; needs mode `required` or stricter"
    )
    key: ReadableFile | None = Field(default=None, description="The private key of `cert`")
    server_public_key: ReadableFile | None = Field(
        default=None,
        description="The server's RSA key, with which the daemon encrypts the password on a connection without TLS",
    )
    allow_public_key_retrieval: bool = Field(
        default=False,
        description=(
            "On a connection without TLS, encrypt the password with the RSA key that the server sends, without"
            " verifying this key"
        ),
    )

    @model_validator(mode="after")
    def _fits(self) -> MysqlTlsSettings:
        lax = self.mode in ("disabled", "preferred")
        for key in ("server_public_key", "allow_public_key_retrieval"):
            if getattr(self, key) and not lax:
                raise ValueError(
                    f"{key} needs mode disabled or preferred; remove it or change mode"
                )
        if self.server_public_key is not None and self.allow_public_key_retrieval:
            raise ValueError("set either server_public_key or allow_public_key_retrieval, not both")
        if self.ca is not None and not self.mode.startswith("verify"):
            raise ValueError("ca needs mode verify_ca or verify_identity; set mode or remove ca")
        if self.cert is not None and lax:
            raise ValueError(
                "cert needs mode required, verify_ca or verify_identity; set mode or remove cert"
            )
        if self.key is not None and self.cert is None:
            raise ValueError("key needs cert; set cert or remove key")
        return self
