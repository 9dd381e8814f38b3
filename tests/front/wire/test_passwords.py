"""Proofs are those that PyMySQL computes; every candidate is compared; the key decrypts what PyMySQL encrypts."""

from __future__ import annotations

import pytest
from pymysql import _auth

from dispatcher.front.wire import passwords
from dispatcher.front.wire.passwords import (
    native_proof,
    secret_of_proof,
    secret_of_text,
    sha2_proof,
)
from tests.front.wire.fronts import KEY

NONCE = bytes(range(1, 21))
SECRETS = ("first", "größer", "third")
METHODS = [
    pytest.param(sha2_proof, _auth.scramble_caching_sha2, id="sha2"),
    pytest.param(native_proof, _auth.scramble_native_password, id="native"),
]


@pytest.mark.parametrize(("proof", "scramble"), METHODS)
def test_a_proof_is_that_of_a_client(proof: passwords.Proof, scramble: passwords.Proof) -> None:
    for secret in SECRETS:
        assert proof(secret.encode(), NONCE) == scramble(secret.encode(), NONCE)


@pytest.mark.parametrize(("proof", "scramble"), METHODS)
def test_the_secret_that_fits_is_found(proof: passwords.Proof, scramble: passwords.Proof) -> None:
    for secret in SECRETS:
        sent = scramble(secret.encode(), NONCE)
        assert secret_of_proof(sent, NONCE, SECRETS, proof) == secret
        assert secret_of_proof(sent, NONCE, (), proof) is None
        assert secret_of_proof(sent, NONCE[::-1], SECRETS, proof) is None
        assert secret_of_proof(sent[:-1], NONCE, SECRETS, proof) is None
    assert secret_of_proof(b"", NONCE, SECRETS, proof) is None


@pytest.mark.parametrize("secrets", [(), ("one",), SECRETS])
def test_all_candidates_are_compared_and_one_for_an_unknown_user(secrets: tuple[str, ...]) -> None:
    compared = []

    def counted(secret: bytes, nonce: bytes) -> bytes:
        compared.append(secret)
        return sha2_proof(secret, nonce)

    right = sha2_proof(b"first", NONCE)
    secret_of_proof(right, NONCE, secrets, counted)
    assert len(compared) == max(len(secrets), 1)


def test_no_password_fits_an_unknown_user() -> None:
    """Not even the text that stands in for the missing secrets fits."""
    text = passwords._NO_SECRET.encode()
    assert secret_of_text(text, ()) is None
    assert secret_of_proof(sha2_proof(text, NONCE), NONCE, (), sha2_proof) is None


def test_a_password_in_clear_text_may_have_a_nul() -> None:
    assert secret_of_text("größer".encode() + b"\0", SECRETS) == "größer"
    assert secret_of_text(b"third", SECRETS) == "third"
    assert secret_of_text(b"thir", SECRETS) is None
    assert secret_of_text(b"", SECRETS) is None


def test_the_key_decrypts_what_a_client_encrypts() -> None:
    encrypted = _auth.sha2_rsa_encrypt("größer".encode(), NONCE, KEY.public_pem)
    assert secret_of_text(KEY.decrypted(encrypted, NONCE), SECRETS) == "größer"
    assert KEY.decrypted(encrypted[:-1], NONCE) == b""
    assert KEY.decrypted(b"", NONCE) == b""
