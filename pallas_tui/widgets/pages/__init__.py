"""What the panes have in common that list the fleet's records page by page."""

from .record_list import RecordList
from .records_pane import RecordsPane

__all__ = ["RecordList", "RecordsPane"]
