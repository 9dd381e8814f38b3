"""The daemon's settings: YAML files, the environment and the command line, as frozen values.

`source` reads them and remembers where each value stood, `model` says what is allowed, `load` puts
the two together and finds everything that is wrong at once.
"""

from dispatcher.settings.load import SettingsError, load, section
from dispatcher.settings.model import (
    Api,
    Connection,
    Consumer,
    Files,
    Listen,
    Log,
    Settings,
    Start,
    State,
    Token,
    Wanted,
)

__all__ = [
    "Api",
    "Connection",
    "Consumer",
    "Files",
    "Listen",
    "Log",
    "Settings",
    "SettingsError",
    "Start",
    "State",
    "Token",
    "Wanted",
    "load",
    "section",
]
