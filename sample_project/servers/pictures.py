"""An MCP server over stdio: looks at the pictures in pictures/."""

from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from PIL import Image as Pillow
from PIL import ImageStat

FOLDER = Path(__file__).resolve().parent.parent / "pictures"
KINDS = {".png", ".jpg", ".jpeg", ".gif", ".webp"}
SMALLEST = 0.02  # of the picture: a colour with less is not a main one

server = MCPServer("pictures", log_level="ERROR")


@server.tool(structured_output=False)
async def list_pictures() -> str:
    """The pictures there are, with their sizes."""
    lines = []
    for name in names():
        with Pillow.open(FOLDER / name) as picture:
            lines.append(f"- {name}: {picture.width} × {picture.height} pixels, {picture.format}")
    return "\n".join(lines) or "There are no pictures."


@server.tool(structured_output=False)
async def look(name: str) -> list[str | Image]:
    """Look at a picture: its size, format, mean colour and main colours, and the picture itself."""
    if name not in names():
        raise ToolError(f"there is no picture {name}; there are: {', '.join(names())}")
    path = FOLDER / name
    with Pillow.open(path) as picture:
        facts = [
            f"| {name} | |",
            "|---|---|",
            f"| size | {picture.width} × {picture.height} pixels |",
            f"| format | {picture.format}, {path.stat().st_size:,} bytes |",
            f"| mean colour | `{mean_colour(picture)}` |",
            *(f"| {share:.0%} of it | `{colour}` |" for share, colour in main_colours(picture)),
        ]
    # A model with vision gets to see it; others read the facts.
    return ["\n".join(facts), Image(path=path)]


def mean_colour(picture: Pillow.Image) -> str:
    return as_hex(ImageStat.Stat(picture.convert("RGB")).mean)


def main_colours(picture: Pillow.Image) -> list[tuple[float, str]]:
    """The colours that are left when there may only be eight, each with its share of the picture."""
    few = picture.convert("RGB").quantize(8, Pillow.Quantize.FASTOCTREE)
    palette = few.getpalette() or []
    pixels = picture.width * picture.height
    shares = (
        (count / pixels, as_hex(palette[3 * slot : 3 * slot + 3])) for count, slot in few.getcolors() or []
    )
    return sorted((found for found in shares if found[0] >= SMALLEST), reverse=True)


def as_hex(rgb: list[float] | list[int]) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in rgb)


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir() if path.suffix.lower() in KINDS)


if __name__ == "__main__":
    server.run("stdio")
