"""Shape and colour of a tone: always both, so that neither is needed alone."""

from typing import Final

from ..state import Level, Tone
from ..text import Glyphs, Part

STYLES: Final = {
    Tone.OK: "$text-success",
    Tone.DEGRADED: "$text-warning",
    Tone.ERROR: "bold $text-error",
    Tone.BACKOFF: "$text-error",
    Tone.CRASH_LOOP: "bold reverse $text-error",
    Tone.STARTING: "$text-primary",
    Tone.STOPPED: "dim",
}
LEVELS: Final[dict[Level, str]] = {"info": "", "warning": "$text-warning", "error": "bold $text-error"}
DIM: Final = "dim"
STRONG: Final = "bold"
KEY: Final = "bold $text-accent"


def shape(tone: Tone, glyphs: Glyphs) -> Part:
    """The tone's one cell."""
    return str(getattr(glyphs, tone.value.replace("-", "_"))), STYLES[tone]
