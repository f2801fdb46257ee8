"""What a user may change of the workbench, in one small file of theirs."""

from .schema import ModelPrice
from .values import (
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
