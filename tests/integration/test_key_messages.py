"""Messages about keys name the file and the variable, and a status once."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving
from support.live import client, running, write_project

KEY = "sk-canary-91ab77"
CLOSED = {"error": {"type": "authentication_error", "message": "invalid key", "code": 401}}


async def closed(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    return JSONResponse(CLOSED, 401)


@pytest.mark.parametrize(
    "model", ["generic.any", "openai.any", "responses.any", "anthropic.claude-sonnet-4-5"]
)
async def test_a_refused_key_is_named_by_file_and_variable_and_the_status_once(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = model.partition(".")[0]
    monkeypatch.setenv("MY_MODEL_KEY", KEY)
    async with serving(FakeDownstream(closed)) as origin:
        base = origin if provider == "anthropic" else f"{origin}/v1"
        config = {"default_model": model, provider: {"base_url": base}, "llm_retries": 0}
        secrets = f"# keys\n{provider}:\n  api_key: ${{MY_MODEL_KEY}}\n"
        write_project(tmp_path, {"one": None}, config=config, files={"fastagent.secrets.yaml": secrets})
        async with running(tmp_path) as fleet, client(fleet, "one") as one:
            result = await one.call_tool("send_message", {"message": "x"})
            error = json.loads(result.content[0].text)["error"]  # type: ignore[union-attr]
            place = (
                f"MY_MODEL_KEY in .env or the environment ({provider}.api_key in fastagent.secrets.yaml:3)"
            )
            assert f"refused the key, HTTP 401; correct {place}" in error
            assert error.count("401") == 1
            shown = fleet.snapshot().agents[0].health.message
            assert KEY not in error + shown
