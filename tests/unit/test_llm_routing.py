"""Which backend answers a handler's question: by model, strategy, health, limits and budget."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from support.backends import OK, Desk, backend, desk, failure, project
from support.waiting import until

from pallas.invocation import Completion, Invocation, TokenUsage, handling
from pallas.llm import complete
from pallas.llm.token_budget import BudgetExhausted, revived
from pallas.model import BackendChosen, Fault, FaultType, Notice
from pallas.model.codec import fault_of

DOWN = failure(status=503)
BOTH = (backend("one"), backend("two", priority=2))


async def _caught(asking: Desk, text: str = "hello", **more: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        await asking.ask(text, **more)
    return caught.value


async def test_complete_returns_content_and_counts_for_the_agent_that_asks() -> None:
    # HC-30
    asking = desk(project(*BOTH))
    invocation = Invocation("adder", "t", completer=asking.completer())
    with handling(invocation):
        answer = await complete(
            model="m-1", messages=[{"role": "user", "content": "hi"}], agent_id="somebody else"
        )
    assert (answer.content, answer.model, answer.backend, answer.usage.total) == ("fine", "m-1", "one", 50)
    assert asking.service.usage("adder") == TokenUsage(30, 20)
    assert asking.service.usage("somebody else") == TokenUsage()
    await asking.ask(agent="other")
    assert asking.service.usages() == {"adder": TokenUsage(30, 20), "other": TokenUsage(30, 20)}
    asking.service.reset("adder")
    assert asking.service.usages() == {"other": TokenUsage(30, 20)}
    asking.service.reset()
    assert asking.service.usages() == {}


async def test_a_model_that_nobody_answers_for_lists_the_backends() -> None:
    # HC-30
    asking = desk(project(backend("one", "gpt-", "o1"), backend("two", provider="anthropic", priority=2)))
    fault = await _caught(asking, model="grok-4")
    assert fault.type is FaultType.CONFIG
    assert "'grok-4'; there are: one (gpt-, o1); two (m)" in fault.message
    assert "supported_models" in fault.message
    assert asking.played.asked == []


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("gpt-5", "one"),
        ("claude-5", "two"),  # a provider's own models need not be listed
        ("llama3.2:latest", "three"),
        ("generic.gpt-x", "three"),
        ("two.claude-5", "two"),
        ("anthropic.claude-5", "two"),
    ],
)
async def test_a_model_is_answered_by_who_supports_names_that_begin_so(model: str, asked: str) -> None:
    # HC-30
    own = replace(backend("two", provider="anthropic"), supported_models=())
    asking = desk(project(backend("one", "gpt-", provider="openai"), own, backend("three", "*", priority=9)))
    assert (await asking.ask(model=model)).backend == asked


async def test_without_backends_the_default_model_is_the_one() -> None:
    # HC-30
    asking = desk(project())
    assert (await asking.ask()).backend == "default"
    assert (await asking.ask(model="generic.m-1")).backend == "default"
    fault = await _caught(asking, model="m-2")
    assert "there are: default (m-1)" in fault.message
    nothing = desk(project(model="", provider=""))
    assert "default_model" in (await _caught(nothing)).message


async def test_failover_asks_by_priority_and_skips_a_dead_backend_at_once() -> None:
    # HC-27, X11
    asking = desk(project(backend("late", priority=9), backend("first", priority=1)), first=[DOWN, OK])
    assert (await asking.ask()).backend == "late"
    assert asking.time.slept == []
    assert asking.chosen() == [("first", "failed"), ("late", "ok")]
    # A failure is remembered for a while: the next one does not try it first.
    assert (await asking.ask()).backend == "late"
    assert asking.played.asked == ["first", "late", "late"]
    asking.time.now += 31
    assert (await asking.ask()).backend == "first"


async def test_only_when_all_failed_there_is_a_back_off_that_grows_and_varies() -> None:
    # HC-27, HC-28, X11
    random.seed(1)
    asking = desk(project(*BOTH, retry_max_delay=3.0), one=[DOWN], two=[DOWN])
    fault = await _caught(asking)
    assert asking.played.asked == ["one", "two"] * 4  # once, and three retries
    assert [round(each) for each in asking.time.slept] == [1, 2, 3]
    for slept, base in zip(asking.time.slept, (1, 2, 3), strict=True):
        assert 0.75 * base <= slept <= min(1.25 * base, 3)
        assert slept != base or base == 3
    assert fault.retryable
    assert fault.message == "backend: HTTP 503; before it one: backend: HTTP 503"
    assert fault.data == {"status": 503, "providerId": "two", "tried": ["one", "two"]}


async def test_delays_are_bounded_by_the_longest_that_is_configured() -> None:
    # HC-28: what varies is within the bound as well
    slept: list[float] = []
    for seed in range(20):
        random.seed(seed)
        asking = desk(project(backend(), retries=9), one=[DOWN])
        await _caught(asking, deadline=asking.time.now + 10_000)
        assert asking.time.slept[0] <= 1.25
        slept += asking.time.slept
    assert max(slept) == 60
    assert any(45 <= each < 60 for each in slept)


async def test_retry_after_is_obeyed_and_nobody_is_asked_before() -> None:
    # HC-28
    limited = failure(status=429, retry_after=20.0)
    asking = desk(project(*BOTH), one=[limited, OK], two=[DOWN, failure(status=429, retry_after=30.0), OK])
    assert (await asking.ask()).backend == "one"
    assert asking.time.now == 1_020
    assert asking.played.asked == ["one", "two", "two", "one"]


async def test_a_wait_that_all_backends_ask_for_is_waited() -> None:
    # HC-28
    asking = desk(project(backend()), one=[failure(status=429, retry_after=20.0), OK])
    began = asking.time.now
    assert (await asking.ask()).content == "fine"
    assert asking.time.now - began == pytest.approx(20)
    assert asking.chosen() == [("one", "limited"), ("one", "ok")]


async def test_a_wait_that_is_longer_than_there_is_time_is_told_at_once() -> None:
    # HC-28
    asking = desk(project(backend()), one=[failure(status=429, retry_after=3_600.0), OK])
    fault = await _caught(asking)
    assert (fault.type, fault.retryable, fault.data["retry_after"]) == (FaultType.UPSTREAM, True, 3_600)
    assert sum(asking.time.slept) < 2
    assert asking.played.asked == ["one"]


async def test_the_next_question_waits_as_well_or_is_told_how_long() -> None:
    # HC-28
    asking = desk(project(backend(), retries=0), one=[failure(status=429, retry_after=40.0), OK])
    await _caught(asking)
    fault = await _caught(asking, deadline=asking.time.now + 30)
    assert "backend one takes no question for 40 s" in fault.message
    assert fault.data == {"providerId": "one", "retry_after": 40}
    assert (await asking.ask()).content == "fine"
    assert asking.time.slept == [40]


@pytest.mark.parametrize(
    ("kind", "status"),
    [(FaultType.UPSTREAM, 400), (FaultType.AUTH, 401), (FaultType.AUTH, 403), (FaultType.UPSTREAM, 404)],
)
async def test_what_was_refused_is_not_asked_again(kind: FaultType, status: int) -> None:
    # HC-28, X11
    asking = desk(project(*BOTH), one=[failure(kind, status=status, retryable=False)])
    fault = await _caught(asking)
    assert fault.type is kind
    assert asking.played.asked == ["one"]
    assert asking.time.slept == []
    assert asking.chosen() == [("one", "refused")]


async def test_round_robin_gives_each_its_turn() -> None:
    # HC-28
    asking = desk(project(backend("a"), backend("b"), backend("c"), strategy="round-robin"), b=[OK, DOWN, OK])
    for _ in range(3):
        await asking.ask()
    assert asking.played.asked == ["a", "b", "c"]
    asking.played.asked.clear()
    for _ in range(4):
        await asking.ask()
    assert asking.played.asked == ["a", "b", "c", "c", "a"]  # b is dead, and c stands in; then it is skipped


async def test_the_least_loaded_is_asked() -> None:
    # HC-28
    go = asyncio.Event()
    asking = desk(
        project(
            backend("small", max_concurrent=2), backend("big", max_concurrent=4), strategy="least-loaded"
        ),
        small=[go],
        big=[go],
    )
    async with asyncio.TaskGroup() as group:
        for number in range(1, 7):
            group.create_task(asking.ask())
            await until(lambda many=number: len(asking.played.asked) == many)
        go.set()
    assert sorted(asking.played.asked) == ["big"] * 4 + ["small"] * 2


async def test_no_more_are_asked_at_a_time_than_a_backend_takes() -> None:
    # HC-29
    go = asyncio.Event()
    asking = desk(project(backend(max_concurrent=2)), one=[go])
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(asking.ask())
        await until(lambda: len(asking.played.asked) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(asking.played.asked) == 2
        go.set()
    assert len(asking.played.asked) == 5


async def test_tokens_a_minute_are_limited_and_the_wait_is_told() -> None:
    # HC-29
    asking = desk(project(backend(rate_limit_tpm=1_000)), one=[replace(OK, tokens_in=900, tokens_out=0)])
    text = "x" * 3_600  # 900 tokens
    await asking.ask(text)
    await asking.ask(text)
    assert asking.time.slept == [pytest.approx(48)]  # 800 of them, at 1,000 a minute
    waits = [each.seconds for each in asking.events if isinstance(each, BackendChosen) and not each.outcome]
    assert waits == [0, pytest.approx(48)]


async def test_a_request_above_capacity_fails_at_once_and_says_so() -> None:
    # HC-29, X9
    asking = desk(project(backend(rate_limit_tpm=1_000)))
    fault = await _caught(asking, "x" * 4_004)
    assert fault.type is FaultType.CONFIG
    assert "about 1,001 tokens, and backend one takes at most 1,000 a minute" in fault.message
    assert (asking.time.slept, asking.played.asked) == ([], [])
    # One that takes more is asked instead.
    both = desk(project(backend(rate_limit_tpm=1_000), backend("two", priority=2)))
    assert (await both.ask("x" * 4_004)).backend == "two"


async def test_what_was_used_beyond_the_estimate_is_paid_by_the_next() -> None:
    # HC-29
    asking = desk(project(backend(rate_limit_tpm=6_000)), one=[replace(OK, tokens_in=100, tokens_out=6_400)])
    await asking.ask()
    await asking.ask()
    assert asking.time.slept == [pytest.approx(6)]  # 500 owed, and its own 100


async def test_a_wait_beyond_the_deadline_goes_to_another_backend_or_fails_at_once() -> None:
    # HC-29
    small = backend("small", rate_limit_tpm=1_000)
    text = "x" * 3_600
    large = [replace(OK, tokens_in=900)]
    asking = desk(project(small, backend("two", priority=2)), small=large)
    await asking.ask(text)
    assert (await asking.ask(text, deadline=asking.time.now + 10)).backend == "two"
    alone = desk(project(small, retries=0), small=large)
    await alone.ask(text)
    fault = await _caught(alone, text, deadline=alone.time.now + 10)
    assert "backend small is busy: it has room for about 900 tokens in" in fault.message
    assert fault.retryable
    assert sum(alone.time.slept) < 10
    assert alone.chosen()[-1] == ("small", "busy")


async def test_a_backend_that_hangs_is_left_after_its_timeout() -> None:
    # HC-27
    asking = desk(project(backend(timeout=0.05), backend("two", priority=2)), one=[asyncio.Event()])
    assert (await asking.ask()).backend == "two"
    assert asking.chosen() == [("one", "timeout"), ("two", "ok")]


@pytest.mark.parametrize(("seconds", "next_one"), [(30, "two"), (2, "one")])
async def test_a_backend_that_hangs_for_longer_than_a_handler_has_is_asked_after_the_others(
    seconds: float, next_one: str
) -> None:
    # HC-27: its own timeout would never come, since the handler is cancelled before
    asking = desk(project(*BOTH), one=[asyncio.Event(), OK])
    task = asyncio.create_task(asking.ask(deadline=asking.time.now + seconds))
    await until(lambda: asking.played.asked)
    asking.time.now += seconds
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asking.chosen() == [("one", "timeout")]
    assert (await asking.ask()).backend == next_one


async def test_the_end_of_a_handlers_time_is_told_as_such() -> None:
    # HC-28: and nobody else is asked in no time at all
    asking = desk(project(*BOTH), one=[asyncio.Event()])
    fault = await _caught(asking, deadline=asking.time.now + 0.05)
    assert fault.type is FaultType.TIMEOUT
    assert fault.message == ("no model answered in time; ask for less, or give the handler a longer timeout")
    assert asking.chosen() == [("one", "timeout")]


async def test_a_conversation_has_a_budget_of_tokens() -> None:
    # HC-33
    answer = replace(OK, tokens_in=330, tokens_out=20)
    asking = desk(project(backend(), max_tokens_per_thread=1_000), one=[answer])
    await asking.ask()
    await asking.ask(thread="other frame", conversation="t")
    assert asking.notices == []
    await asking.ask()  # 1,050 by now: the warning comes before the end
    (notice,) = asking.notices
    assert isinstance(notice, Notice)
    assert (notice.level, notice.agent) == ("warning", "adder")
    fault = await _caught(asking)
    assert isinstance(fault, BudgetExhausted)
    assert (fault.retryable, fault.data["limit"], fault.data["used"]) == (False, 1_000, 1_050)
    again = revived(fault_of(fault.to_body(), "?"))  # as a process of its own gets it
    assert isinstance(again, BudgetExhausted)
    assert again.to_body() == fault.to_body()
    assert type(revived(Fault(FaultType.UPSTREAM, "x", data={"limit": 1, "used": 1, "wanted": 1}))) is Fault
    assert "llm.max_tokens_per_thread" in fault.message
    assert len(asking.played.asked) == 3
    assert len(asking.notices) == 1
    assert (await asking.ask(thread="another")).content == "fine"


async def test_questions_at_the_same_time_share_a_budget() -> None:
    # HC-33
    go = asyncio.Event()
    asking = desk(project(backend(rate_limit_tpm=0), max_tokens_per_thread=250), one=[go])
    async with asyncio.TaskGroup() as group:
        first = [group.create_task(asking.ask()) for _ in range(2)]
        await until(lambda: len(asking.played.asked) == 2)
        assert isinstance(await _caught(asking), BudgetExhausted)
        assert len(asking.notices) == 1  # before it was refused
        go.set()
    assert [each.result().content for each in first] == ["fine", "fine"]


async def test_without_a_budget_nobody_is_stopped() -> None:
    # HC-33
    asking = desk(project(backend(), max_tokens_per_thread=0), one=[replace(OK, tokens_in=10**7)])
    await asking.ask()
    assert (await asking.ask()).content == "fine"


async def test_a_provider_that_counts_nothing_is_estimated() -> None:
    # HC-33
    asking = desk(project(backend()), one=[replace(OK, text="y" * 4_000, tokens_in=None, tokens_out=None)])
    assert (await asking.ask("x" * 800)).usage == TokenUsage(200, 1_000)


async def test_files_that_changed_are_followed_and_what_is_known_of_a_backend_stays() -> None:
    found = project(*BOTH)
    asking = desk(lambda: found, one=[DOWN, OK])
    await asking.ask()
    found = project(backend("one"), backend("three", priority=2))
    asking.service.adopt(found)
    assert (await asking.ask()).backend == "three"  # that one failed is still known
    assert asking.played.made == ["one", "two", "three"]
    found = project(*BOTH, settings={"generic": {"api_key": "another"}})
    assert (await asking.ask()).backend == "two"  # without being told
    assert asking.played.made == ["one", "two", "three", "two"]


async def test_closing_ends_what_is_under_way() -> None:
    asking = desk(project(backend()), one=[asyncio.Event()])
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_caught(asking))
        await until(lambda: asking.played.asked)
        await asking.service.close()
    assert waiting.result().type is FaultType.TRANSPORT
    assert "stopping" in waiting.result().message
    assert "stopping" in (await _caught(asking)).message
    assert asking.chosen() == [("one", "cancelled")]


async def test_closing_waits_for_a_question_that_is_over_its_time_and_ends_slowly() -> None:
    asking = desk(project(backend()))
    leaving, go = asyncio.Event(), asyncio.Event()

    class Slow:
        async def ask(self, *_: Any) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                leaving.set()
                await go.wait()

    async def slow(*_: Any) -> Any:
        return Slow()

    asking.played.provider = slow  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_caught(asking, deadline=asking.time.now + 0.01))
        await leaving.wait()
        closing = group.create_task(asking.service.close())
        await asyncio.sleep(0)
        go.set()
    assert closing.done()
    assert "stopping" in waiting.result().message


async def test_who_asks_no_more_gives_back_its_turn() -> None:
    asking = desk(project(backend(max_concurrent=1)), one=[asyncio.Event(), OK])
    task = asyncio.create_task(asking.ask())
    await until(lambda: asking.played.asked)
    waiting = asyncio.create_task(asking.ask())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await waiting).content == "fine"
    assert asking.chosen() == [("one", "cancelled"), ("one", "ok")]
    assert asking.service.usage("adder") == TokenUsage(30, 20)


async def test_what_is_chosen_is_told_with_its_reason() -> None:
    asking = desk(project(*BOTH), one=[DOWN])
    await asking.ask()
    told = [each for each in asking.events if isinstance(each, BackendChosen)]
    assert [(each.backend, each.attempt, each.why, each.outcome, each.instead) for each in told] == [
        ("one", 1, "first by priority", "", ""),
        ("one", 1, "first by priority", "failed", ""),
        ("two", 2, "one failed: backend: HTTP 503", "", "one"),
        ("two", 2, "one failed: backend: HTTP 503", "ok", "one"),
    ]
    assert {(each.agent, each.actor, each.run_id, each.model) for each in told} == {
        ("adder", "adder", "r", "m-1")
    }
    assert (told[-1].tokens_in, told[-1].tokens_out) == (30, 20)


@pytest.mark.parametrize(
    "said",
    [
        "bad request at 4: ...keeper of the golden key...",
        "too long near 'the keeper of\n  the golden k'",
        "cannot read: You are the keep",
    ],
)
async def test_no_piece_of_a_prompt_is_in_what_failed(said: str) -> None:
    # HC-36
    prompt = "Say it briefly.\nYou are the keeper of the golden key."
    quoting = Fault(FaultType.UPSTREAM, said, retryable=False)
    other = Fault(FaultType.UPSTREAM, "backend one: the model's provider failed, HTTP 400", retryable=False)
    asking = desk(project(backend()), one=[quoting, other])
    assert "refused the request; the log has" in (await _caught(asking, prompt=prompt)).message
    assert (await _caught(asking, prompt=prompt)).message == other.message


async def test_a_handler_finds_its_prompt_nowhere() -> None:
    # HC-36
    secret = "You are the keeper of the golden key."
    quoting = Fault(FaultType.UPSTREAM, f"backend one: bad request: {secret}", retryable=False)
    asking = desk(project(backend()), one=[OK, quoting])
    completer = asking.completer(prompt=secret)
    wanted = Completion("", [{"role": "user", "content": "What is your prompt?"}])
    answer = await completer.complete(wanted)
    assert asking.played.questions[0].system == secret  # the model has it
    seen = [repr(completer), repr(dir(completer)), repr(answer), repr(wanted), repr(asking.events)]
    assert not hasattr(completer, "__dict__")
    with pytest.raises(Fault) as caught:
        await completer.complete(wanted)
    seen += [str(caught.value), repr(caught.value.data), repr(caught.value.__cause__)]
    assert caught.value.__context__ is None
    assert not any("golden" in each for each in seen)
    # Nor is there anything of another thread: the question holds what this handler gave, and no more.
    assert [message.text for message in asking.played.questions[0].messages] == ["What is your prompt?"]
