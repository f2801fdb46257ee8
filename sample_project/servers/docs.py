"""An MCP server over stdio: full-text search in documents/*.md.

Each section of a document, from one `## heading` to the next, is a passage. SQLite's FTS5 does the searching:
it knows that "invoices" and "invoiced" are one word, and ranks rare words above common ones (BM25).
"""

import re
import sqlite3
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

FOLDER = Path(__file__).resolve().parent.parent / "documents"
# Words that stand in every question and say nothing about it.
IGNORED = set(
    re.findall(
        r"\w+",
        """a about an and any are at by can did do does for from have how i in is it me my of on or our tell
        that the their them there they this to us was we were what when which who why with you your""",
    )
)

server = MCPServer("docs", instructions="Search first; then read the section you need.", log_level="ERROR")


def index() -> sqlite3.Connection:
    """All passages of all documents, ready to be searched."""
    database = sqlite3.connect(":memory:")
    database.execute(
        "CREATE VIRTUAL TABLE passages USING fts5(name, section, body, tokenize = 'porter unicode61')"
    )
    for path in sorted(FOLDER.glob("*.md")):
        for section, body in sections(path.read_text("utf-8")):
            database.execute("INSERT INTO passages VALUES (?, ?, ?)", (path.name, section, body))
    return database


def sections(text: str) -> list[tuple[str, str]]:
    """A document's sections as (heading, body); what stands before the first has the title as heading."""
    head, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, lead = head.strip().removeprefix("# ").partition("\n")
    found = [(title.strip(), lead.strip())]
    for part in rest:
        heading, _, body = part.partition("\n")
        found.append((heading.strip(), body.strip()))
    return found


DATABASE = index()


@server.tool(structured_output=False)
async def search(query: str) -> str:
    """Find passages in the company's documents. Give words, not a sentence; the best passage comes first."""
    words = [word for word in re.findall(r"\w+", query.lower()) if word not in IGNORED][:20]
    # Any of the words may stand there; each is quoted, so that none is taken for an operator.
    wanted = " OR ".join(f'"{word}"' for word in words)
    # A word weighs more in a file's name or a heading than in the text below it.
    rows = DATABASE.execute(
        "SELECT name, section, snippet(passages, 2, '', '', ' … ', 24) FROM passages "
        "WHERE passages MATCH ? ORDER BY bm25(passages, 4, 3, 1) LIMIT 5",
        (wanted or '""',),
    ).fetchall()
    if not rows:
        return f"Nothing found. There are: {', '.join(names())}"
    return "\n".join(
        f"{rank}. {name} § {section}: {' '.join(snippet.split())}"
        for rank, (name, section, snippet) in enumerate(rows, 1)
    )


@server.tool(structured_output=False)
async def read(name: str, section: str = "") -> str:
    """Read a document, or one section of it by its heading. Names are as search gives them."""
    if name not in names():
        raise ToolError(f"there is no document {name}; there are: {', '.join(names())}")
    text = (FOLDER / name).read_text("utf-8")
    if not section:
        return text
    found = dict(sections(text))
    if section not in found:
        raise ToolError(f"{name} has no section {section}; it has: {', '.join(found)}")
    return f"## {section}\n\n{found[section]}"


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.md"))


if __name__ == "__main__":
    server.run("stdio")
