"""The packets of the handshake, as PyMySQL reads and writes them, and responses of other clients."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.handshake import (
    NATIVE,
    SHA2,
    Greeting,
    is_ssl_request,
    new_nonce,
    parse_response,
    switch_request,
)
from dispatcher.front.wire.packets import Capability, lenenc_text

NONCE = bytes(range(1, 21))
OFFERED = Greeting("9.7.4", 1, NONCE, tls=True).capabilities
BASE = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION


def response(capabilities: Capability, *fields: bytes) -> bytes:
    head = capabilities.to_bytes(4, "little") + bytes(4) + b"\x2d" + bytes(23)
    return b"".join((head, *fields))


def test_a_greeting_has_the_fields_of_handshake_v10() -> None:
    payload = Greeting("9.7.4", 0x01020304, NONCE, tls=True).payload()
    assert payload[:7] == b"\x0a9.7.4\0"
    assert payload[7:20] == b"\x04\x03\x02\x01" + NONCE[:8] + b"\0"
    assert int.from_bytes(payload[20:22] + payload[25:27], "little") == OFFERED
    assert payload[22:25] == b"\x2d\x02\0"
    assert payload[27:] == b"\x15" + bytes(10) + NONCE[8:] + b"\0" + SHA2.encode() + b"\0"


def test_tls_is_offered_only_where_there_is_a_certificate() -> None:
    assert OFFERED & Capability.SSL
    assert not Greeting("9.7.4", 1, NONCE, tls=False).capabilities & Capability.SSL


def test_neither_compression_nor_session_tracking_nor_query_attributes_are_offered() -> None:
    unknown = 1 << 5 | 1 << 23 | 1 << 26 | 1 << 27
    assert OFFERED & unknown == 0


def test_a_nonce_is_text_without_its_ends() -> None:
    nonces = {new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(len(nonce) == 20 and nonce.isascii() for nonce in nonces)
    assert not any(0 in nonce or b"$" in nonce for nonce in nonces)


def test_a_request_for_tls_is_known_by_its_length_and_flag() -> None:
    assert is_ssl_request(response(BASE | Capability.SSL))
    assert not is_ssl_request(response(BASE))
    assert not is_ssl_request(response(BASE | Capability.SSL, b"user\0\0"))


def test_a_response_with_all_fields() -> None:
    sent = (
        BASE
        | Capability.CONNECT_WITH_DB
        | Capability.PLUGIN_AUTH
        | Capability.PLUGIN_AUTH_LENENC
        | Capability.CONNECT_ATTRS
    )
    attributes = lenenc_text(b"_os") + lenenc_text(b"Linux")
    payload = response(
        sent,
        b"reader\0",
        lenenc_text(b"p" * 32),
        b"shop\0",
        NATIVE.encode() + b"\0",
        lenenc_text(attributes),
    )
    read = parse_response(payload, OFFERED)
    assert (read.user, read.proof, read.database) == ("reader", b"p" * 32, "shop")
    assert (read.plugin, read.charset) == (NATIVE, 45)
    assert read.attributes == {"_os": "Linux"}
    assert read.capabilities == sent


def test_a_client_that_knows_no_methods() -> None:
    """mysqljs, for example, sends neither the name of a method nor attributes."""
    read = parse_response(response(BASE, b"reader\0", b"\x03abc"), OFFERED)
    assert (read.plugin, read.proof, read.database) == ("", b"abc", None)


def test_a_capability_that_was_not_offered_is_not_used() -> None:
    compress = Capability(1 << 5)
    read = parse_response(response(BASE | compress, b"reader\0", b"\0"), OFFERED)
    assert read.capabilities == BASE


def test_bytes_that_are_not_utf8_make_a_name_of_no_consumer() -> None:
    read = parse_response(response(BASE, b"\xffx\0", b"\0"), OFFERED)
    assert read.user == r"\xffx"


@pytest.mark.parametrize("missing", [Capability.PROTOCOL_41, Capability.SECURE_CONNECTION])
def test_a_client_older_than_4_1_is_refused(missing: Capability) -> None:
    with pytest.raises(WireError) as refused:
        parse_response(response(BASE & ~missing, b"reader\0", b"\0"), OFFERED)
    assert refused.value.number == 1251


@given(st.binary(max_size=120), st.booleans())
def test_any_bytes_are_read_or_refused(tail: bytes, modern: bool) -> None:
    payload = response(Capability(0xFFFFFFFF), tail) if modern else tail
    with contextlib.suppress(WireError):
        parse_response(payload, OFFERED)


def test_a_change_of_the_method_ends_its_nonce() -> None:
    assert switch_request(NATIVE, NONCE) == b"\xfemysql_native_password\0" + NONCE + b"\0"
