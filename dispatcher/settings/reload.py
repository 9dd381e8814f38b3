"""Computes which part of new settings applies to a running daemon: some settings change only at a restart. Pure."""

from __future__ import annotations

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.settings.model import Settings


def until_restart(written: Settings, running: Settings) -> Settings:
    """Returns the new settings `written` with the state of the running daemon.

    The daemon uses this state until a restart. So consumers must not get the changes of the running state's database,
    even if `written` names another one.

    Raises UserError (SETTINGS) if `written` has no tokens, and the daemon listens on an address other than loopback:
    until a restart, it would accept every request at this address.
    """
    listens = {"api.listen": running.api.listen}
    if running.front is not None:
        listens["front.listen"] = running.front.listen
    public = next((key for key, listen in listens.items() if not listen.loopback), None)
    if public is not None and not written.api.tokens:
        raise UserError(
            ErrorKind.SETTINGS,
            f"there are no api.tokens, but until a restart the daemon listens on {listens[public]} ({public})",
            remedy="set api.tokens, or restart the daemon with a loopback address",
        )
    return written.model_copy(update={"state": running.state})
