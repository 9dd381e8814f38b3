"""Computes which part of new settings applies to a running daemon. Some settings change only at a restart."""

from __future__ import annotations

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.settings.model import Settings


def until_restart(written: Settings, running: Settings) -> Settings:
    """Returns the new settings `written` with the section `state` of the running daemon.

    The daemon uses the state of this section until a restart. So until then no consumer may read the database of this
    state, even if `written` names another database.

    Raises UserError (SETTINGS) if `written` has no tokens and the daemon listens on an address other than loopback.
    Without tokens it would accept every request at this address until a restart.
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
