"""What a user may change of the workbench, in one small file of theirs."""

from .settings_schema import ModelPrice
from .settings_values import (
    MAX_FILE,
    VARIABLE,
    Notify,
    Settings,
    load_settings,
    settings_path,
    state_path,
)

__all__ = [
    "MAX_FILE",
    "VARIABLE",
    "ModelPrice",
    "Notify",
    "Settings",
    "load_settings",
    "settings_path",
    "state_path",
]
