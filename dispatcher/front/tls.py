"""Loads the certificate that the front uses for TLS."""

from __future__ import annotations

import ssl

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.front import FrontSettings


def front_tls(settings: FrontSettings) -> ssl.SSLContext | None:
    """Return the front's TLS context, or None if the setting `front.tls` is missing. Raises BinlogError if the files do
    not contain a certificate and its key."""
    if settings.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls.cert, settings.tls.key)
    except (OSError, ssl.SSLError) as error:
        remedy = "set front.tls.cert to a certificate in PEM and front.tls.key to its key"
        raise BinlogError(ErrorKind.SETTINGS, f"front.tls: {error}", remedy=remedy) from None
    return context
