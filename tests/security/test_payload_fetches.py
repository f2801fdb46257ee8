"""A payload that names files and addresses: nothing of it is fetched."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pallas.payloads import PayloadFault, PayloadType, elements_of


@dataclass
class Note:
    """A text and a number."""

    text: str
    count: int = 0


NOTE = PayloadType.of(Note)


def _note(text: str) -> str:
    return f"<Note><text>{text}</text></Note>"


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """A web server that remembers what it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!ENTITY stolen 'yes'>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join(60)
    server.server_close()


def test_nothing_is_fetched_and_no_file_is_read(listener: tuple[str, list[str]], tmp_path: Path) -> None:
    # HC-24
    url, asked = listener
    secret = tmp_path / "secret.txt"
    secret.write_text("PLANTED-SECRET")
    xsi = "http://www.w3.org/2001/XMLSchema-instance"
    for place in (url, secret.as_uri()):
        include = f'<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{place}/i"/>'
        for xml in (
            f'<!DOCTYPE Note [<!ENTITY x SYSTEM "{place}/e">]>' + _note("&x;"),
            f'<!DOCTYPE Note SYSTEM "{place}/d">' + _note("a"),
            f'<!DOCTYPE Note [<!ENTITY % p SYSTEM "{place}/p"> %p;]>' + _note("&stolen;"),
            _note(include),
            f'<Note xmlns:s="{xsi}" s:noNamespaceSchemaLocation="{place}/s"><text>a</text></Note>',
            f'<Note xmlns:s="{xsi}" s:schemaLocation="urn:a {place}/s"><text>a</text></Note>',
            f'<?xml-stylesheet href="{place}/x" type="text/xsl"?>' + _note("a"),
        ):
            for read in (NOTE.parse, lambda data: [NOTE.adopt(element) for element in elements_of(data)]):
                with pytest.raises(PayloadFault) as told:
                    read(xml.encode())
                assert "PLANTED" not in told.value.message
    assert asked == []
