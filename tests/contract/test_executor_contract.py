"""One contract for all executors: what a kernel may rely on, whatever it is that answers.

Each row is tried with each kind of executor, on a real other side (``support.contract``): a model server, a
program, another fleet, handlers. What does not hold for one kind is in ``EXCEPTIONS``, and what holds there
instead is tried. ``docs/agent-kinds.md`` has the list; ``PALLAS_WRITE_DOCS=1`` writes it again.
"""

import asyncio
import os
import textwrap
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from support import pallas_process
from support.contract import KINDS, Subject, Talk, idle
from support.pictures import picture
from support.waiting import until

from pallas.executors import Executor
from pallas.model import Event, Fault, FaultType, Image, TextDelta, Usage

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

Check = Callable[[Subject], Awaitable[None]]
ROWS: Final[dict[str, tuple[str, Check]]] = {}
PAGE: Final = Path(__file__).parents[2] / "docs" / "agent-kinds.md"
TITLES: Final = {
    "fastagent": "llm",
    "worker": "worker",
    "remote": "remote",
    "handler": "handler",
    "typed": "handler, typed",
}
AS_WRITTEN: Final = (
    "streamed text is clean; the answer is as the model wrote it, because the model reads it again, and is "
    "cleaned where it is shown"
)
NEVER_BREAKS: Final = "it has no part that could break by itself"
NO_PICTURES: Final = "its messages have none; pictures are refused, and the next turn is answered"
WHOLE: Final = "it answers with one whole message, so there is no text before; the rest holds"
OF_OTHERS: Final = "the tokens are those of the models it calls, which its fleet counts and reports"
# Row and kind, and why it is otherwise there: the only reasons that are allowed.
EXCEPTIONS: Final[dict[tuple[str, str], str]] = {
    ("sanitises", "fastagent"): AS_WRITTEN,
    ("reports its end", "handler"): NEVER_BREAKS,
    ("reports its end", "typed"): NEVER_BREAKS,
    ("pictures", "typed"): NO_PICTURES,
    ("cancels", "typed"): WHOLE,
    ("times out", "typed"): WHOLE,
    ("counts", "typed"): OF_OTHERS,
}
ALLOWED: Final = frozenset({AS_WRITTEN, NEVER_BREAKS, NO_PICTURES, WHOLE, OF_OTHERS})


def row(name: str, promise: str) -> Callable[[Check], Check]:
    """A row of the contract: its name, and what holds, as the page says it."""

    def keep(check: Check) -> Check:
        ROWS[name] = (promise, check)
        return check

    return keep


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subjects(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Callable[[str, str], Awaitable[Subject]]]:
    """One started executor of each kind, made when it is first asked for.

    Another where what breaks is the other side, which all rows of a kind share.
    """
    made: dict[tuple[str, bool], Subject] = {}
    async with AsyncExitStack() as stack:

        async def subject(kind: str, name: str) -> Subject:
            key = kind, (kind, name) == ("remote", "reports its end")
            if key not in made:
                root = tmp_path_factory.mktemp("contract") / kind
                made[key] = await stack.enter_async_context(KINDS[kind](root))
            return made[key]

        yield subject


def text_of(heard: list[Event]) -> str:
    """The agent's own text, as it was streamed."""
    return "".join(event.text for event in heard if isinstance(event, TextDelta) and not event.reasoning)


@row("answers", "A message gets a text as its answer; the turn has the user's message and the answer.")
async def answers(subject: Subject) -> None:
    result = await subject.say("hello")
    assert result.texts == ("1:hello",)
    assert [(each.role, each.text) for each in result.messages] == [
        ("user", "hello"),
        ("assistant", "1:hello"),
    ]
    assert (await subject.kernel().run("hello")).text == "1:hello"


@row("remembers", "The next turn of a conversation knows the earlier ones, on whatever side they are stored.")
async def remembers(subject: Subject) -> None:
    talk = Talk("id:one")
    assert (await subject.say("hello", talk)).texts == ("1:hello",)
    assert (await subject.say("and now", talk)).texts == ("2:and now",)
    asked = subject.kernel()
    assert (await asked.run("hello", conversation="c")).text == "1:hello"
    assert (await asked.run("again", conversation="c")).text == "2:again"
    subject.executor.release("id:one")


@row(
    "isolates", "Two conversations know nothing of each other, and a turn without one leaves nothing behind."
)
async def keeps_apart(subject: Subject) -> None:
    one, other = Talk("id:left"), Talk("id:right")
    await subject.say("hello", one)
    assert (await subject.say("hello", other)).texts == ("1:hello",)
    assert (await subject.say("once")).texts == ("1:once",)
    assert (await subject.say("on", one)).texts == ("2:on",)


@row("pictures", "It says whether it accepts pictures; accepted pictures arrive.")
async def pictures(subject: Subject) -> None:
    image = Image(b64encode(picture("PNG")).decode(), "image/png")
    assert subject.executor.info.vision
    result = await subject.kernel().run("picture", images=(image,))
    assert result.text.lower() == "1 picture: image/png"


@row("streams", "A caller can read the text while it is written; the joined pieces are the answer.")
async def streams(subject: Subject) -> None:
    heard: list[Event] = []
    result = await subject.say("pieces", hear=heard.append, stream_text=True)
    assert result.texts == ("one two three",)
    assert text_of(heard) == "one two three"
    assert {event.run_id for event in heard if isinstance(event, TextDelta)} == {f"r{subject.turns}"}


@row("cancels", "Cancelling a turn ends its work, and the next turn is answered.")
async def cancels(subject: Subject) -> None:
    # DR-16
    talk, heard = Talk("id:cancel"), list[Event]()
    run = asyncio.create_task(subject.say("wait here", talk, hear=heard.append, stream_text=True))
    await until(lambda: subject.busy() == 1 and "so" in text_of(heard))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await idle(subject)
    assert (await subject.say("hello", talk)).texts[0].endswith(":hello")


@row("times out", "A deadline ends the work; the caller gets TIMEOUT with the text so far.")
async def runs_out_of_time(subject: Subject) -> None:
    # DR-15
    for limit in (0.5, 2.0, 8.0, 30.0):  # on a busy machine a first word may take its time
        with pytest.raises(Fault) as late:
            await subject.kernel().run("wait here", timeout=limit, stream_text=True)
        said = late.value.type, late.value.retryable, late.value.data["limit"]
        assert said == (FaultType.TIMEOUT, True, limit)
        if "partial" in late.value.data:
            break
    assert str(late.value.data["partial"]).startswith("so")
    await idle(subject)
    assert (await subject.say("hello")).texts == ("1:hello",)


@row("sanitises", "Text from outside cannot control a terminal: in the answer, while streaming, when stored.")
async def cleans(subject: Subject) -> None:
    heard: list[Event] = []
    result = await subject.say("hostile", hear=heard.append, stream_text=True)
    for text in (*result.texts, text_of(heard), *(each.text for each in result.messages)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert result.texts[0].startswith("red")


@row("concurrent", "Runs of different conversations are concurrent.")
async def concurrent(subject: Subject) -> None:
    waiting = [asyncio.create_task(subject.say("wait", Talk(f"id:par{each}"))) for each in range(2)]
    await until(lambda: subject.busy() == 2)
    assert (await subject.say("hello")).texts == ("1:hello",)
    for run in waiting:
        run.cancel()
    await asyncio.wait(waiting)
    await idle(subject)


@row("counts", "It reports the tokens that the other side counted.")
async def counts(subject: Subject) -> None:
    usage = (await subject.say("hello")).usage
    assert usage.input_tokens
    assert usage.output_tokens


@row("fails", "A failure of the other side is a Fault with its type, and the next turn is answered.")
async def fails(subject: Subject) -> None:
    with pytest.raises(Fault) as failure:
        await subject.kernel().run("fail")
    assert failure.value.type is FaultType.UPSTREAM
    assert "\n" not in failure.value.message
    assert "Traceback" not in failure.value.message
    assert (await subject.say("hello")).texts == ("1:hello",)


@row("is parked", "After `park` it can start again, and answers.")
async def is_parked(subject: Subject) -> None:
    await subject.executor.park(5.0)
    await subject.executor.start()
    assert (await subject.say("hello")).texts == ("1:hello",)


@row("closes", "After `close` no task and no process is left.")
async def closes(subject: Subject) -> None:
    tasks, children = asyncio.all_tasks(), pallas_process.below()
    executor = await _another(subject)
    run = asyncio.create_task(subject.say("wait", executor=executor))
    await until(lambda: subject.busy() == 1)
    run.cancel()
    await asyncio.wait({run})
    await executor.close(5.0)
    await idle(subject)
    await until(lambda: not asyncio.all_tasks() - tasks)
    await until(lambda: set(pallas_process.below()) <= set(children))


@row("reports its end", "If it breaks by itself, it reports that to its owner, once.")
async def told_once(subject: Subject) -> None:
    assert subject.break_it is not None
    executor = await _another(subject)
    told: list[str] = []
    executor.when_failed(told.append)
    try:
        await subject.break_it(executor)
        await until(lambda: told)
        await executor.close(5.0)
        assert len(told) == 1
        assert told[0]
    finally:
        await executor.close(1.0)


async def streams_clean(subject: Subject) -> None:
    """In place of ``cleans``."""
    heard: list[Event] = []
    await subject.say("hostile", hear=heard.append, stream_text=True)
    assert text_of(heard).startswith("red")
    assert "\x1b" not in text_of(heard)
    assert "\u202e" not in text_of(heard)


async def never_breaks(subject: Subject) -> None:
    """In place of ``reports its end``: not even what it answers with can end it."""
    told: list[str] = []
    subject.executor.when_failed(told.append)
    with pytest.raises(Fault):
        await subject.say("fail")
    assert (await subject.say("hello")).texts == ("1:hello",)
    assert not told
    assert subject.break_it is None


async def refuses_pictures(subject: Subject) -> None:
    """In place of ``pictures``."""
    image = Image(b64encode(picture("PNG")).decode(), "image/png")
    assert not subject.executor.info.vision
    with pytest.raises(Fault, match="image"):
        await subject.kernel().run("picture", images=(image,))
    with pytest.raises(Fault, match="no images"):
        await subject.say("picture", images=(image,))
    assert (await subject.say("hello")).texts == ("1:hello",)


async def ends_whole(subject: Subject) -> None:
    """In place of ``cancels`` and ``runs out of time``: the same, of an answer that says nothing before."""
    run = asyncio.create_task(subject.say("wait here", Talk("id:cancel")))
    await until(lambda: subject.busy() == 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await idle(subject)
    with pytest.raises(Fault) as late:
        await subject.kernel().run("wait here", timeout=0.5, stream_text=True)
    assert (late.value.type, late.value.retryable, late.value.data["limit"]) == (FaultType.TIMEOUT, True, 0.5)
    await idle(subject)
    assert (await subject.say("hello")).texts == ("1:hello",)


async def counts_no_own(subject: Subject) -> None:
    """In place of ``counts``."""
    assert (await subject.say("hello")).usage == Usage()


INSTEAD: Final[dict[str, Check]] = {
    AS_WRITTEN: streams_clean,
    NEVER_BREAKS: never_breaks,
    NO_PICTURES: refuses_pictures,
    WHOLE: ends_whole,
    OF_OTHERS: counts_no_own,
}
"""What holds where a row does not."""


async def _another(subject: Subject) -> Executor:
    executor = await subject.again()
    await executor.load()
    await executor.start()
    return executor


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_executor_keeps_the_contract(
    subjects: Callable[[str, str], Awaitable[Subject]], kind: str, name: str
) -> None:
    subject = await subjects(kind, name)
    why = EXCEPTIONS.get((name, kind))
    check = ROWS[name][1] if why is None else INSTEAD[why]
    async with asyncio.timeout(60):
        await check(subject)


def promises() -> str:
    """The list of what every kind guarantees, as ``docs/agent-kinds.md`` has it."""
    lines = []
    for name, (promise, _) in ROWS.items():
        but: dict[str, list[str]] = {}
        for kind in KINDS:
            if why := EXCEPTIONS.get((name, kind)):
                but.setdefault(why, []).append(f"`{TITLES[kind]}`")
        lines += textwrap.wrap(
            " ".join([f"- {promise}", *(f"Not {' and '.join(kinds)}: {why}." for why, kinds in but.items())]),
            118,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join([*lines, ""])


async def test_the_page_is_the_contract() -> None:
    before, start, rest = PAGE.read_text("utf-8").partition("- A message gets a text")
    _, end, after = rest.partition("\n## ")
    if os.environ.get("PALLAS_WRITE_DOCS"):
        PAGE.write_text(before + promises() + end + after, "utf-8")
    assert start + rest.removesuffix(end + after) == promises()
    assert set(EXCEPTIONS.values()) <= ALLOWED
    assert INSTEAD.keys() == ALLOWED
    assert {name for name, _ in EXCEPTIONS} <= ROWS.keys()
