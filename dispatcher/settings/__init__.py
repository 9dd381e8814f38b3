"""The daemon's settings: YAML files, the environment and the command line, as frozen values.

`source` reads them and remembers where each value stood, `model` says what is allowed, `load` puts
the two together and finds everything that is wrong at once.
"""

from dispatcher.settings.load import SettingsError, load
from dispatcher.settings.model import (
    Api,
    Consumer,
    Files,
    Listen,
    Log,
    Settings,
    Start,
    State,
    Token,
)

__all__ = [
    "Api",
    "Consumer",
    "Files",
    "Listen",
    "Log",
    "Settings",
    "SettingsError",
    "Start",
    "State",
    "Token",
    "load",
]
