"""What the panes have in common that list the fleet's records page by page."""

from .list import RecordList
from .pane import RecordsPane

__all__ = ["RecordList", "RecordsPane"]
