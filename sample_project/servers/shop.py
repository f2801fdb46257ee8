"""An MCP server over HTTP: products, stock and orders, from a small SQLite database.

The database is built in memory from data/catalogue.sql at start, and only read after that.
"""

import argparse
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

DATA = Path(__file__).resolve().parent.parent / "data" / "catalogue.sql"

server = MCPServer("shop", instructions="Prices are in EUR, without VAT.", log_level="ERROR")


def load() -> sqlite3.Connection:
    """The database, which refuses to be written to."""
    database = sqlite3.connect(":memory:")
    database.executescript(DATA.read_text("utf-8"))
    database.execute("PRAGMA query_only = ON")
    return database


DATABASE = load()


@server.tool(structured_output=False)
async def find_products(text: str = "", max_price: float | None = None) -> str:
    """Find products by words of their name or kind, the best first; at most `max_price` EUR each."""
    words = [word.removesuffix("s") for word in re.findall(r"[\w-]+", text.lower())][:10]
    rows = DATABASE.execute("SELECT sku, name, words, price_cents, stock FROM products").fetchall()
    ranked = []
    for sku, name, more, cents, stock in rows:
        hits = sum(word in f"{sku} {name} {more}".lower() for word in words)
        if (hits or not words) and (max_price is None or cents <= max_price * 100):
            ranked.append((-hits, cents, (sku, name, price(cents), stock or "sold out")))
    if not ranked:
        return "No product fits."
    best = min(hits for hits, *_ in ranked)
    return table(("SKU", "product", "EUR", "stock"), (row for hits, _, row in sorted(ranked) if hits == best))


@server.tool(structured_output=False)
async def stock(sku: str) -> str:
    """How many of a product are in stock. A SKU looks like DL-100."""
    row = DATABASE.execute(
        "SELECT name, price_cents, stock FROM products WHERE sku = ?", (sku.strip().upper(),)
    ).fetchone()
    if row is None:
        raise ToolError(f"there is no product {sku}; find_products knows all SKUs")
    name, cents, left = row
    return f"{sku.strip().upper()}, {name}: {left or 'none'} in stock, {price(cents)} EUR each."


@server.tool(structured_output=False)
async def orders_of(customer: str = "", month: str = "", discounted: bool = False) -> str:
    """What was ordered: by one customer (part of the name is enough) or all, in one month (2026-05) or ever.

    With `discounted` only orders with a discount code.
    """
    rows = DATABASE.execute(
        """
        SELECT customer, number, ordered_on, coalesce(discount_code, '–'),
               group_concat(quantity || ' × ' || name, '; '), sum(quantity * price_cents)
        FROM orders JOIN order_lines USING (number) JOIN products USING (sku)
        WHERE instr(lower(customer), lower(?)) > 0 AND instr(ordered_on, ?) = 1
          AND (discount_code IS NOT NULL OR NOT ?)
        GROUP BY number ORDER BY ordered_on
        """,
        (customer.strip(), month.strip(), discounted),
    ).fetchall()
    if not rows:
        return "No order fits."
    heads = ("customer", "order", "date", "discount", "bought", "list price EUR")
    return table(heads, ((*row[:-1], price(row[-1])) for row in rows))


def price(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Rows as a Markdown table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    server.run("streamable-http", host="127.0.0.1", port=parser.parse_args().port)
