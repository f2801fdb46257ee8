"""What a user may change of the workbench, in one small file of theirs."""

from .schema import Price
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
    "Notify",
    "Price",
    "Settings",
    "load_settings",
    "settings_path",
    "state_path",
]
