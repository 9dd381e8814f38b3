"""The daemon's settings: YAML files, the environment and the command line, as frozen values.

`source` reads them and remembers where each value stood, `model` says what is allowed, `load` puts
the two together and finds everything that is wrong at once.
"""

from dispatcher.settings.load import SettingsError, load, section
from dispatcher.settings.model import (
    ApiSettings,
    ConnectionSettings,
    ConsumerSettings,
    FilesSettings,
    Listen,
    LogSettings,
    Settings,
    StartSettings,
    StateSettings,
    TokenSettings,
    Wanted,
)

__all__ = [
    "ApiSettings",
    "ConnectionSettings",
    "ConsumerSettings",
    "FilesSettings",
    "Listen",
    "LogSettings",
    "Settings",
    "SettingsError",
    "StartSettings",
    "StateSettings",
    "TokenSettings",
    "Wanted",
    "load",
    "section",
]
