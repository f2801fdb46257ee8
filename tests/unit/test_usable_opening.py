"""What is made of odd answers to initialize and server/discover."""

from typing import Any

import pytest
from support.sdk_answers import HANDSHAKE, MODERN, usable

from pallas.downstreams.usable_results import usable_result

OPENING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}


@pytest.mark.parametrize(
    ("keys", "made", "said"),
    [
        (
            {"serverInfo": {"name": "odd"}},
            {"serverInfo": {"name": "odd", "version": "unknown"}},
            "its serverInfo has no version",
        ),
        (
            {"serverInfo": {"version": "1"}},
            {"serverInfo": {"name": "unknown", "version": "1"}},
            "its serverInfo has no name",
        ),
        (
            {"serverInfo": {"name": "odd", "version": 1.5}},
            {"serverInfo": {"name": "odd", "version": "1.5"}},
            "its serverInfo has a version that is a number, not a text",
        ),
        (
            {"instructions": "i" * 70_000},
            {"instructions": "i" * 65_536},
            "its instructions have 70,000 characters; the first 65,536 are used",
        ),
        (
            {"serverInfo": None},
            {"serverInfo": {"name": "unknown", "version": "unknown"}},
            "its serverInfo is missing",
        ),
        (
            {"serverInfo": "odd"},
            {"serverInfo": {"name": "odd", "version": "unknown"}},
            "its serverInfo is a text, not an object",
        ),
        (
            {"serverInfo": {"name": "odd", "version": "1", "icons": 5}},
            {"serverInfo": {"name": "odd", "version": "1"}},
            "its serverInfo.icons should be a valid list",
        ),
        ({"instructions": ["a"]}, {}, "its instructions should be a valid string"),
        (
            {"capabilities": None},
            {"capabilities": {"tools": {}}},
            "it does not say its capabilities; it is taken to have tools",
        ),
        (
            {"capabilities": True},
            {"capabilities": {"tools": {}}},
            "its capabilities are true, not an object; it is taken to have tools",
        ),
        (
            {"capabilities": []},
            {"capabilities": {"tools": {}}},
            "its capabilities are a list, not an object; it is taken to have tools",
        ),
        (
            {"capabilities": ["prompts", "x"]},
            {"capabilities": {"prompts": {}}},
            "its capabilities are a list, not an object; it is taken to have prompts",
        ),
        (
            {"capabilities": {"tools": True}},
            {"capabilities": {"tools": {}}},
            "its capabilities.tools is true, not an object",
        ),
        (
            {"capabilities": {"tools": []}},
            {"capabilities": {"tools": {}}},
            "its capabilities.tools is a list, not an object",
        ),
        (
            {"capabilities": {"tools": {"listChanged": "?"}}},
            {"capabilities": {"tools": {}}},
            "its capabilities.tools.listChanged should be a valid boolean, unable to interpret input",
        ),
        (
            {"capabilities": {"experimental": {"a": 1}}},
            {"capabilities": {"experimental": {}}},
            "its capabilities.experimental.a should be a valid dictionary",
        ),
        ({"capabilities": {"tools": None, "new": 5}}, {"capabilities": {"tools": None, "new": 5}}, ""),
        ({"capabilities": {"prompts": False}}, {"capabilities": {}}, ""),
        (
            {"protocolVersion": None},
            {"protocolVersion": "2025-11-25"},
            "it does not say its protocol version; it is taken as 2025-11-25",
        ),
        (
            {"protocolVersion": 2},
            {"protocolVersion": "2025-11-25"},
            "it does not say its protocol version; it is taken as 2025-11-25",
        ),
        (
            {"protocolVersion": "2099-01-01"},
            {"protocolVersion": "2025-11-25"},
            "its protocol version '2099-01-01' is not known; it is taken as 2025-11-25",
        ),
        (
            {"protocolVersion": MODERN},
            {"protocolVersion": "2025-11-25"},
            "its protocol version '2026-07-28' is not known; it is taken as 2025-11-25",
        ),
        (
            {"protocolVersion": "2024-10-07"},
            {"protocolVersion": "2024-11-05"},
            "its protocol version '2024-10-07' is not known; it is taken as 2024-11-05",
        ),
        (
            {"protocolVersion": "2025-05-01"},
            {"protocolVersion": "2025-03-26"},
            "its protocol version '2025-05-01' is not known; it is taken as 2025-03-26",
        ),
        (
            {"protocolVersion": "DRAFT"},
            {"protocolVersion": "2025-11-25"},
            "its protocol version 'DRAFT' is not known; it is taken as 2025-11-25",
        ),
    ],
)
def test_an_odd_answer_to_initialize_opens_the_connection(
    keys: dict[str, Any], made: dict[str, Any], said: str
) -> None:
    given = {key: value for key, value in {**OPENING, **keys}.items() if value is not None}
    found, findings = usable("initialize", given)
    assert found == {**OPENING, **made}
    assert findings == ([f"server: {said}"] if said else [])


def test_an_answer_to_discover_is_repaired_if_it_names_versions() -> None:
    raw = {"supportedVersions": [MODERN, 5], "capabilities": {"tools": True}, "instructions": 5, "ttlMs": "x"}
    made, found = usable("server/discover", raw)
    assert made == {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
    assert len(found) == 4
    assert usable("server/discover", {"supportedVersions": MODERN, "capabilities": {}})[0] == {
        "supportedVersions": [MODERN],
        "capabilities": {},
    }
    # It is no answer of a modern server: the SDK tries the handshake then.
    assert usable_result("server/discover", {}).problem == "it has no supportedVersions"
