"""An interceptor answers requests to models in place of connections, or lets them pass."""

from pathlib import Path

import httpx2
import pytest
from support.live import agent_module, running, write_project
from support.providers import Reply, provider

from pallas.executors.fastagent import seam
from pallas.executors.model_client.provider_connections import provider_connections
from pallas.fleet.fleet import Fleet
from pallas.model import Fault, FaultType, RunRequest, RunStarted

MODELS = {"chat": "generic.qwen3", "messages": "anthropic.claude-haiku-4-5"}


async def statuses(fleet: Fleet) -> list[int | None]:
    """The status of each attempt of the first step of the last run."""
    started = [each for each in fleet.hub.since(0).events if isinstance(each, RunStarted)]
    step, *_ = await fleet.kernel.step_reader.list(started[-1].run_id)
    return [attempt.status for attempt in step.attempts]


@pytest.mark.parametrize("agent", MODELS)
async def test_it_is_asked_before_each_attempt_and_may_answer_fail_or_let_it_pass(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seam, "RETRY_SECONDS", 0.0)
    answers: list[httpx2.Response | Exception | None] = []
    asked: list[str] = []

    async def intercept(request: httpx2.Request) -> httpx2.Response | None:
        asked.append(request.url.path)
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with provider(lambda asked: Reply("from the model")) as models:
        model = MODELS[agent]
        root = write_project(tmp_path, {agent: agent_module(agent, model=model)}, config=models.config(model))
        async with running(root) as fleet:
            kernel = fleet.kernel
            assert (await kernel.run(RunRequest(agent, "one"))).text == "from the model"
            passed = len(models.asked)
            provider_connections().interceptor = intercept
            answers[:] = [httpx2.Response(429, headers={"retry-after": "0"}, json={}), None]
            assert (await kernel.run(RunRequest(agent, "two"))).text == "from the model"
            assert await statuses(fleet) == [429, 200]
            assert (len(asked), len(models.asked)) == (2, passed + 1)
            answers[:] = [httpx2.RemoteProtocolError("cut"), None]
            assert (await kernel.run(RunRequest(agent, "three"))).text == "from the model"
            answers[:] = [httpx2.Response(503, headers={"x-should-retry": "false"}, json={})]
            with pytest.raises(Fault, match="HTTP 503"):
                await kernel.run(RunRequest(agent, "four"))
            assert await statuses(fleet) == [503]
            answers[:] = [Fault(FaultType.CONFIG, "not today")]
            with pytest.raises(Fault, match="not today"):
                await kernel.run(RunRequest(agent, "five"))
            before = len(asked)
            provider_connections().interceptor = None
            assert (await kernel.run(RunRequest(agent, "six"))).text == "from the model"
            assert len(asked) == before
