"""Remedies for a stream with a snapshot. The modules that log in and read rows are shared with the daemon and the
mirror, so some of their remedies name settings that the source does not have."""

from __future__ import annotations

from dispatcher.model.errors import BinlogError

# Each pair: a text, and the remedy that replaces every remedy with this text. If a remedy contains several of these
# texts, the first pair counts.
_REMEDIES = (
    (
        "tls.server_public_key",
        "let the server offer TLS, and set the option mysqlTls to verify_identity or verify_ca; or to required where"
        " the network is trusted",
    ),
    (
        "tls.mode to preferred",
        "the server accepts TLS only: set the option mysqlTls to preferred, required, verify_ca or verify_identity",
    ),
    (
        "tls.cert",
        "set the option mysqlCaFile to a readable PEM file, on the driver and on every executor",
    ),
    (
        "tls.mode",
        "set the option mysqlTls to verify_identity, with mysqlCaFile, or let the account use another method",
    ),
    (
        "tls.ca",
        "point the option mysqlCaFile at the authority that signed it, and name in the option mysql a host that the"
        " certificate contains",
    ),
    (
        "the consumer's tls settings",
        "compare the server's tls_version and certificates with the options mysqlTls and mysqlCaFile",
    ),
    (
        "the daemon reconnects",
        "find out why the server or the network ends connections, then start the query again: it continues at its"
        " checkpoint",
    ),
    (
        "the copy of the table begins again",
        "start the query again: it continues at its checkpoint, and reads the rows of this range again",
    ),
)


def with_own_remedy(error: BinlogError) -> BinlogError:
    """Returns `error`. If its remedy names a setting that the source does not have, replaces the remedy."""
    for part, remedy in _REMEDIES:
        if part in error.remedy:
            error.remedy = remedy
            break
    return error
