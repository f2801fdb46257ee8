"""What a run asked its models is recorded: request, answer, attempts and usage of each step, also later."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from support.kept import written
from support.live import ECHO, ERAS, agent_module, ask, client, running, write_project
from support.providers import Asked, Provider, Reply, in_turn, provider

from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import LocalPort
from pallas.model import Fault, RunStarted, Step

MODELS = {
    "chat": "generic.qwen3",
    "messages": "anthropic.claude-haiku-4-5",
    "responses": "responses.gpt-5-mini",
    "gemini": "google.gemini-2.5-flash",
}
BEARER = "canary-bearer-4f1b2c3d4e5f"


def project_of(root: Path, models: Provider, agents: dict[str, str], **more: Any) -> Path:
    config: dict[str, Any] = {}
    for model in agents.values():
        name = model.partition(".")[0]
        config |= {key: each for key, each in models.config(model).items() if key == name}
    modules = {name: agent_module(name, ("echo",), model=model) for name, model in agents.items()}
    return write_project(root, modules, config={**config, **ECHO}, **more)


def last_run(fleet: Fleet, agent: str) -> str:
    runs = [each for each in fleet.hub.since(0, 20_000).events if isinstance(each, RunStarted)]
    return next(each.run_id for each in reversed(runs) if each.agent == agent)


async def steps_of(fleet: Fleet, agent: str) -> tuple[Step, ...]:
    return await LocalPort(fleet).steps(last_run(fleet, agent))


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_each_model_step_of_every_provider_is_recorded_with_what_was_sent(
    tmp_path: Path, era: str
) -> None:
    answer = in_turn(Reply(calls=[("echo__echo", {"text": "hi"})]), Reply("it said hi"))
    async with (
        provider(answer) as models,
        running(project_of(tmp_path, models, MODELS), database=f"sqlite:///{tmp_path}/ledger.db") as fleet,
    ):
        port = LocalPort(fleet)
        for name, model in MODELS.items():
            models.asked.clear()
            async with client(fleet, name, era=era, bearer=BEARER) as connected:
                assert (
                    await ask(connected, f"{name}: say {BEARER}", conversation_id=f"kept-{name}")
                    == "it said hi"
                )
            run = last_run(fleet, name)
            steps = await port.steps(run)
            assert [(step.number, step.kind) for step in steps] == [(1, "model"), (2, "tool"), (3, "model")]
            for step, asked in zip(steps[::2], models.asked, strict=True):
                detail = await port.step(run, step.number)
                assert detail.step == step
                assert step.state == "done"
                assert model == f"{step.provider}.{step.name}"
                assert [attempt.status for attempt in step.attempts] == [200]
                assert step.seconds is not None
                assert step.first_token is not None
                assert 0 <= step.first_token <= step.seconds
                assert (step.usage.input, step.usage.output) != (None, None)
                sent = json.dumps(asked.body).replace(BEARER, "[redacted]")
                assert json.loads(detail.request) == json.loads(sent)
                assert BEARER not in repr(detail)
            first, second = [(await port.step(run, number)).response for number in (1, 3)]
            assert "echo__echo" in first
            assert '"hi"' in first.replace("\\", "")
            assert "it said hi" in json.dumps(json.loads(second), ensure_ascii=False)
            kept = [(await port.step(run, step.number)) for step in steps]
            ledger = fleet.kernel.step_reader.ledger
            assert ledger is not None
            await written(ledger, run)
            assert await ledger.steps.list(run) == steps
            for detail in kept:
                assert await ledger.steps.get(run, detail.step.number) == detail
        with pytest.raises(Fault, match="step not found"):
            await port.step(run, 4)


async def test_retries_are_attempts_of_one_step_and_a_failed_call_says_why(tmp_path: Path) -> None:
    refusals = [503, 0]

    def answer(asked: Asked) -> Reply:
        return Reply("done")

    async with provider(answer) as models:
        hear = models._hear

        async def refuse(request: Any, kind: Any) -> Any:
            heard = await hear(request, kind)
            if refusals and (status := refusals.pop(0)):
                return JSONResponse({"error": {"message": "busy"}}, status, {"retry-after": "0"})
            return heard

        models._hear = refuse  # type: ignore[method-assign]
        async with running(project_of(tmp_path, models, {"chat": "generic.qwen3"})) as fleet:
            async with client(fleet, "chat") as connected:
                assert await ask(connected, "hello") == "done"
            (step,) = await steps_of(fleet, "chat")
            assert [attempt.status for attempt in step.attempts] == [503, 200]
            assert step.attempts[0].reason == "HTTP 503"
            assert step.state == "done"
            refusals[:] = [400]
            async with client(fleet, "chat") as connected:
                assert (await connected.call_tool("send_message", {"message": "again"})).is_error
            (step,) = await steps_of(fleet, "chat")
            assert (step.state, [attempt.status for attempt in step.attempts]) == ("failed", [400])
            assert "busy" in (await LocalPort(fleet).step(step.run_id, 1)).response


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
async def test_steps_of_an_agent_in_its_own_process_are_recorded_in_the_fleet(tmp_path: Path) -> None:
    answer = in_turn(Reply(calls=[("echo__echo", {"text": "hi"})]), Reply("it said hi"))
    async with provider(answer) as models:
        root = project_of(
            tmp_path, models, {"chat": "generic.qwen3"}, keys={"chat": {"isolation": "process"}}
        )
        async with running(root) as fleet, client(fleet, "chat", bearer=BEARER) as connected:
            assert await ask(connected, f"say {BEARER}") == "it said hi"
            run = last_run(fleet, "chat")
            steps = await LocalPort(fleet).steps(run)
            assert [(step.number, step.state, step.name) for step in steps] == [
                (1, "done", "qwen3"),
                (2, "done", "echo__echo"),
                (3, "done", "qwen3"),
            ]
            for step, asked in zip(steps[::2], models.asked, strict=True):
                detail = await LocalPort(fleet).step(run, step.number)
                assert json.loads(detail.request) == json.loads(
                    json.dumps(asked.body).replace(BEARER, "[redacted]")
                )
                assert BEARER not in repr(detail)
            assert "it said hi" in detail.response
