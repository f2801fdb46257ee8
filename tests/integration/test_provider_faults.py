"""A model provider that fails: the caller learns what, whether to retry, and nothing secret."""

import json
from pathlib import Path

import pytest
from support.live import client, module_fleet, running, write_project
from support.offline import offline_model
from support.ports import free_ports

from pallas import aiohttp_transport
from pallas.fleet.fleet import Fleet

SCRIPT = """
rules:
  - {when: {text: refuse}, error: {status: 401, message: "bad key sk-abcdefghijklmnopqrstuvwx"}}
  - {when: {text: hurry}, error: {status: 429, message: "slow down"}}
  - {when: {text: break}, error: {status: 503, message: "oops"}}
  - {when: {text: odd}, error: {status: 404, message: "no such model"}}
  - {when: {last: user}, say: "fine"}
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@module_fleet()
def fleet(folder: Path) -> Path:
    return write_project(folder, {"here": None}, **offline_model(SCRIPT, config={"llm_retries": 0}))


@pytest.mark.parametrize(
    ("text", "kind", "code", "retryable", "says"),
    [
        ("refuse", "AUTH", -32003, False, "HTTP 401"),
        ("hurry", "UPSTREAM", -32002, True, "rate limit"),
        ("break", "UPSTREAM", -32002, True, "HTTP 503"),
        ("odd", "UPSTREAM", -32002, False, "HTTP 404"),
    ],
)
async def test_a_providers_refusal_has_its_type_and_no_key(
    fleet: Fleet, text: str, kind: str, code: int, retryable: bool, says: str
) -> None:
    # PR-36, DR-22
    async with client(fleet, "here") as here:
        result = await here.call_tool("send_message", {"message": text, "conversation_id": "c"})
        body = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert result.is_error
        assert body["code"] == code
        assert body["data"] == {"type": kind, "retryable": retryable, "providerId": "generic"}
        assert says in body["error"]
        assert "sk-abc" not in repr(result)
        again = await here.call_tool("send_message", {"message": "hello", "conversation_id": "c"})
        assert again.content[0].text == "fine"  # type: ignore[union-attr]


async def test_a_provider_that_is_away_says_so_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DR-22
    monkeypatch.setattr(aiohttp_transport, "STALE_AFTER", -1.0)  # as if no call had been made for long
    (nobody,) = free_ports(1)
    settings = {
        "default_model": "generic.scripted",
        "generic": {"base_url": f"http://127.0.0.1:{nobody}/v1", "api_key": "offline"},
        "llm_retries": 0,
    }
    write_project(tmp_path, {"away": None}, config=settings)
    async with running(tmp_path) as fleet, client(fleet, "away") as away:
        result = await away.call_tool("send_message", {"message": "hello"})
        body = json.loads(result.content[0].text)  # type: ignore[union-attr]
        # The provider's own library calls a refused connection a time-out; it is none.
        assert body["data"] == {"type": "TRANSPORT", "retryable": True, "providerId": "generic"}
        assert "check its base_url" in body["error"]
