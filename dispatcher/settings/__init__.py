"""The daemon's settings: YAML files, the environment and the command line, as frozen values.

`source` reads them and remembers where each value stood, `model` says what is allowed, `load` puts
the two together and finds everything that is wrong at once.
"""

from dispatcher.settings.load import SettingsError, load_settings, parse_section
from dispatcher.settings.model import (
    ApiSettings,
    ConnectionSettings,
    ConsumerSettings,
    FilesSettings,
    LogSettings,
    Settings,
    StartSettings,
    StateSettings,
    SubscriptionSettings,
    TokenSettings,
)

__all__ = [
    "ApiSettings",
    "ConnectionSettings",
    "ConsumerSettings",
    "FilesSettings",
    "LogSettings",
    "Settings",
    "SettingsError",
    "StartSettings",
    "StateSettings",
    "SubscriptionSettings",
    "TokenSettings",
    "load_settings",
    "parse_section",
]
