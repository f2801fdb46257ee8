"""Messages about keys name the file and the variable, and a status once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving
from support.live import client, running, write_project

from pallas.cli.check import check

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


@pytest.mark.parametrize(
    ("model", "provider", "variable"),
    [
        ("haiku", "anthropic", "ANTHROPIC_API_KEY"),
        ("gpt-4.1", "openai", "OPENAI_API_KEY"),
        ("gpt-5-mini?reasoning=low", "responses", "OPENAI_API_KEY"),
        ("kimi", "hf", "HF_TOKEN"),
    ],
)
async def test_a_missing_key_is_found_for_the_models_that_fast_agent_knows_by_name(
    tmp_path: Path,
    model: str,
    provider: str,
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    async with serving(FakeDownstream(closed)) as origin:
        config = {"default_model": model, "hf": {"base_url": f"{origin}/v1"}}
        write_project(tmp_path, {"one": None}, config=config)
        assert await asyncio.to_thread(check, tmp_path, ask=True) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fastagent.config.yaml:")
    assert line.endswith(f"default_model: {provider}: {variable} is not set. Put it into .env.")
