"""Compares a client's answer with the secrets of its user.

With `caching_sha2_password`, the proof is SHA256(secret) XOR SHA256(SHA256(SHA256(secret)) + nonce). If the proof fits
no secret, the front asks the client for the secret itself, which the client sends over TLS or encrypted with the
front's RSA key. A MySQL server asks for the secret, too, if the user's login is not in its cache. So even a client that
computes wrong proofs can log in. With `mysql_native_password`, the proof is SHA1(secret) XOR SHA1(nonce +
SHA1(SHA1(secret))).

Every comparison tries all secrets, so that a wrong answer takes as long as a right one. If the user has no secrets, the
answer is compared with a placeholder, and the result is always None. Source: sql/auth/sha2_password.cc,
sql/auth/password.cc of MySQL.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from itertools import cycle

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_NO_SECRET = "no secret of this user"  # noqa: S105 - a text that is compared in place of secrets
_KEY_BITS = 2048

Proof = Callable[[bytes, bytes], bytes]
"""Computes the proof of an authentication method from secret and nonce."""


SHA2_PROOF_BYTES = 32


def sha2_proof(secret: bytes, nonce: bytes) -> bytes:
    """Return the proof of caching_sha2_password for a nonce."""
    once = hashlib.sha256(secret).digest()
    twice = hashlib.sha256(once).digest()
    return _xor(once, hashlib.sha256(twice + nonce).digest())


def native_proof(secret: bytes, nonce: bytes) -> bytes:
    """Return the proof of mysql_native_password for a nonce."""
    once = _sha1(secret)
    return _xor(once, _sha1(nonce + _sha1(once)))


def secret_of_proof(
    proof: bytes,
    nonce: bytes,
    secrets: Sequence[str],
    method: Proof,
) -> str | None:
    """Return the secret for which a proof is right, None if there is none. `method`: `sha2_proof` or `native_proof`."""
    return _matching(secrets, lambda secret: hmac.compare_digest(method(secret, nonce), proof))


def secret_of_text(text: bytes, secrets: Sequence[str]) -> str | None:
    """Return the secret that equals a password in clear text, None if there is none. `text`: the password with or
    without its final NUL."""
    digest = hashlib.sha256(text.removesuffix(b"\0")).digest()
    return _matching(
        secrets, lambda secret: hmac.compare_digest(hashlib.sha256(secret).digest(), digest)
    )


def _matching(secrets: Sequence[str], fits: Callable[[bytes], bool]) -> str | None:
    """Return the last secret that fits, None if none fits. Compares all secrets."""
    matching = None
    for secret in secrets or (_NO_SECRET,):
        if fits(secret.encode()):
            matching = secret
    return matching if secrets else None


class PasswordKey:
    """The RSA key with which clients without TLS encrypt their passwords. The daemon generates a new key at each start,
    which takes about 100 ms."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
        self.public_pem = self._key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    def decrypted(self, encrypted: bytes, nonce: bytes) -> bytes:
        """Return the password in clear text, with its final NUL. Returns b"" if the bytes were not encrypted with this
        key."""
        oaep = padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)  # noqa: S303 - as clients do
        try:
            return _xor(self._key.decrypt(encrypted, oaep), nonce)
        except ValueError:
            return b""


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _xor(data: bytes, key: bytes) -> bytes:
    """Return `data` XOR `key`. The key is repeated to the length of the data."""
    return bytes(a ^ b for a, b in zip(data, cycle(key), strict=False))
