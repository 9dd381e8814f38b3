"""Compares the settings of the daemons that share a state, as far as they matter after a takeover.

A daemon stores digests of its settings, never the settings themselves. Passwords, the files of passwords and of TLS,
and addresses of the API and the front do not count: they may differ between hosts. For a token, only its rights are
compared, not its value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from dispatcher.settings.model import Settings

Digests = dict[str, dict[str, str]]
"""Maps each part of the settings, such as "consumer shop", to digests of its values by key. Consumers and sources have
no digest of a value that is the default."""

_OF_A_HOST = {"password", "password_file", "tls"}
_OF_A_TOKEN = {"name", "consumers", "sources", "scopes"}
CONSUMER = "consumer "
"""The prefix of the names of consumers in `Digests`."""


def digests_of(settings: Settings) -> Digests:
    found = {CONSUMER + name: _digests(each) for name, each in settings.consumers.items()}
    found |= {f"source {name}": _digests(each) for name, each in settings.sources.items()}
    rights = [token.model_dump(mode="json", include=_OF_A_TOKEN) for token in settings.api.tokens]
    rights.sort(key=json.dumps)
    found["api"] = {"tokens": _digest(rights)}
    found["state"] = {"lease": _digest(settings.state.lease)}
    found["front"] = {"front": _digest(settings.front is not None)}
    return found


def differences(leader: Mapping[str, Mapping[str, str]], own: Digests) -> dict[str, str]:
    """Return a description of each part (a key of `Digests`) in which the settings of the leader and of this daemon
    differ. Empty if nothing differs."""
    found = {}
    for name in sorted(leader.keys() | own.keys()):
        if name not in own:
            found[name] = "only the leader has it"
        elif name not in leader:
            found[name] = "the leader does not have it"
        elif keys := _different(leader[name], own[name]):
            found[name] = f"other values of {', '.join(keys)}"
    return found


def _different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def _digests(settings: BaseModel) -> dict[str, str]:
    values = settings.model_dump(mode="json", exclude=_OF_A_HOST, exclude_defaults=True)
    return {key: _digest(value) for key, value in values.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
