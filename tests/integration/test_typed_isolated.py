"""A typed handler in a process of its own keeps the contract that it has in the fleet's."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from support.apart import CREW, Hosted, hosted
from support.waiting import until

from pallas.contract import SystemError, Text
from pallas.executors.typed.handler_child_messages import MAX_MODEL_QUESTIONS
from pallas.executors.typed.payload_conversion import InvalidReply
from pallas.invocation import Completion, LLMResponse, TokenUsage
from pallas.model import Fault, FaultType
from pallas.payloads import Payload, PayloadFault, PayloadType

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crew(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hosted]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", "sk-of-the-environment")
        patch.setenv("PALLAS_CONTROL_TOKEN", "the-control-token")
        patch.setenv("TZ", "UTC")
        async with hosted(tmp_path_factory.mktemp("crew")) as made:
            yield made


async def fails(crew: Hosted, what: str, text: str = "", number: int = 0) -> Fault:
    with pytest.raises(Fault) as caught:
        await crew.reply(what, text, number)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        ("def act(payload, metadata): open('called', 'w')", 8, "is not asynchronous"),
        ("async def act(payload): open('called', 'w')", 8, "takes only payload and no metadata"),
    ],
)
async def test_what_is_no_handler_is_refused_with_its_line_and_never_called(
    tmp_path_factory: pytest.TempPathFactory, source: str, line: int, problem: str
) -> None:
    # HC-1
    root = tmp_path_factory.mktemp("refused")
    head = "from dataclasses import dataclass\n\n\n@dataclass\nclass Act:\n    what: str\n\n"
    with pytest.raises(Fault) as caught:
        async with hosted(root, head + source):
            raise AssertionError("it was taken")
    assert caught.value.type is FaultType.CONFIG
    assert problem in caught.value.message
    assert caught.value.message.startswith(f"crew.py:{line}: ")
    assert caught.value.data["place"] == f"crew.py:{line}"
    assert not (root / "called").exists()


async def test_the_fleet_learns_what_it_takes_and_imports_nothing_of_it(crew: Hosted) -> None:
    assert (crew.payload.key, crew.payload.name) == ("crew:Act", "Act")
    assert crew.payload.json_schema["properties"]["number"]["type"] == "integer"
    assert crew.defined == f"crew.py:{CREW.splitlines().index('async def act(payload, metadata):') + 1}"
    assert crew.host.files == ("crew.py",)
    assert crew.host.pid is not None
    assert await crew.act("modules") == "False"


async def test_a_message_comes_as_an_instance_of_its_class_and_back_as_one(crew: Hosted) -> None:
    # HC-2
    awkward = '<b> & "quotes" \' ä \U0001f980\n\tend'
    reply = await crew.reply("say", awkward, 7)
    [(to, payload)] = reply.messages
    assert to is None
    assert (payload.key, payload.name) == ("crew:Done", "Done")
    assert payload.type.values(payload) == {"text": awkward, "number": 7}
    with pytest.raises(PayloadFault):
        crew.payload.parse(b"<Act><number>3</number></Act>")


async def test_it_says_whom_a_message_is_for_and_may_say_nothing(crew: Hosted) -> None:
    [(to, payload)] = (await crew.reply("to", "friend")).messages
    assert (to, payload.type.values(payload)["text"]) == ("friend", "for friend")
    assert (await crew.reply("nothing")).messages == ()


async def test_it_is_told_what_a_handler_may_know(crew: Hosted) -> None:
    # HC-8
    frame = str(uuid.uuid4())
    said = await crew.act("metadata", frame=frame)
    assert said == (
        f"HandlerMetadata(thread_id={frame!r}, from_id='system.caller', own_name=None, is_self_call=False, "
        "usage_instructions='', todo_nudge='')"
    )
    said = await crew.act(
        "metadata", own_name="crew", is_self_call=True, usage_instructions="friend: text", from_id="crew"
    )
    assert "own_name='crew', is_self_call=True, usage_instructions='friend: text'" in said  # HC-9


async def test_what_it_writes_on_its_metadata_or_its_answer_goes_nowhere(crew: Hosted) -> None:
    # HC-11
    delivery = crew.delivery("forge", "mine")
    before = repr(delivery.metadata)
    reply = await crew.host.handle(delivery)
    [(to, payload)] = reply.messages
    assert to is None
    assert b"boss" not in payload.xml
    assert repr(delivery.metadata) == before
    assert not hasattr(delivery.metadata, "chain")
    assert "boss" not in await crew.act("metadata")


async def test_what_it_keeps_is_the_frames_and_goes_with_it(crew: Hosted) -> None:
    # HC-18
    frame, other = str(uuid.uuid4()), str(uuid.uuid4())
    await crew.act("keep", "the treasure", frame=frame)
    assert await crew.act("kept", frame=frame) == "the treasure"
    assert await crew.act("kept", frame=other) == "None"
    crew.host.ended(frame)
    assert await crew.act("kept", frame=frame) == "None"


async def test_bytes_come_as_they_are(crew: Hosted) -> None:
    reply = await crew.reply("bytes", "<Done><text>ö</text></Done><b/>")
    assert reply.messages == ()
    assert reply.raw == "<Done><text>ö</text></Done><b/>".encode()


@pytest.mark.parametrize(("what", "kind"), [("raise", "ValueError"), ("exit", "exit")])
async def test_what_it_raises_is_the_operators_and_logged_whole(
    crew: Hosted, caplog: pytest.LogCaptureFixture, what: str, kind: str
) -> None:
    # HC-22
    pid = crew.host.pid
    with caplog.at_level(logging.ERROR, "pallas.agents.crew"):
        fault = await fails(crew, what, "the inner secret")
        assert await crew.act("say", "alive") == "alive"  # also: all that it logged before has come
    assert fault.type is FaultType.UPSTREAM
    assert kind in fault.cause
    assert f"({kind})" not in fault.message
    assert "the inner secret" not in repr(fault.to_body())
    assert crew.host.pid == pid
    if what == "raise":
        logged = [each for each in caplog.records if "the inner secret" in each.message]
        assert "crew.py" in (logged[0].exc_text or "")
        assert "Traceback" in (logged[0].exc_text or "")


async def test_what_is_no_answer_is_for_the_log_alone(crew: Hosted) -> None:
    # HC-22
    with pytest.raises(InvalidReply, match="returned a value of type dict"):
        await crew.reply("wrong")
    assert await crew.act("say", "alive") == "alive"


async def test_an_answer_that_does_not_fit_its_own_class_is_told_to_its_sender(crew: Hosted) -> None:
    fault = await fails(crew, "unfit", "text")
    assert isinstance(fault, PayloadFault)
    assert fault.system_code == "validation"
    assert "number" in fault.message
    fault = await fails(crew, "size", number=1_100_000)
    assert isinstance(fault, PayloadFault)


@dataclass
class Unknown:
    """A class of somebody else."""

    word: str


async def test_answers_of_others_come_as_classes_that_it_knows_else_as_documents(crew: Hosted) -> None:
    # HC-7
    async def given(payload: Payload) -> str:
        [(_, answer)] = (await crew.host.handle(crew.delivery("", payload=payload))).messages
        return str(answer.type.values(answer)["text"])

    assert await given(PayloadType.of(Text).pack(Text("hello"))) == "Text: Text(text='hello')"
    failed = SystemError("timeout", "The target did not answer in time.", retry_allowed=True)
    assert (await given(PayloadType.of(SystemError).pack(failed))).startswith(
        "SystemError: SystemError(code="
    )
    said = await given(PayloadType.of(Unknown).pack(Unknown("a & b")))
    assert said == "Document: Document(tag='Unknown', xml='<Unknown><word>a &amp; b</word></Unknown>')"
    [(_, done)] = (await crew.reply("say", "its own", 3)).messages
    assert await given(done) == "Done: Done(text='its own', number=3)"


async def test_it_reads_no_secret_of_its_fleet(crew: Hosted) -> None:
    # HC-36
    environ = await crew.act("environ")
    assert "'TZ': 'UTC'" in environ
    assert "sk-of-the-environment" not in environ
    assert "the-control-token" not in environ
    for secret in ("the secret prompt", "sk-of-the-settings", "sk-of-the-environment"):
        assert await crew.act("search", secret[::-1]) == "0"
    assert "friend" not in await crew.act("metadata")


class Told:
    """Answers as a model would."""

    def __init__(self) -> None:
        self.wanted: list[Completion] = []
        self.open = asyncio.Event()
        self.open.set()
        self.cancelled = 0
        self.error: Fault | None = None
        self.now = self.most = 0

    async def complete(self, completion: Completion) -> LLMResponse:
        self.wanted.append(completion)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1
        if self.error is not None:
            raise self.error
        return LLMResponse("42", "model", TokenUsage(3, 4), raw={"id": "x"})


async def test_it_asks_models_through_its_fleet(crew: Hosted) -> None:
    # HC-30
    told = Told()
    [(_, answer)] = (await crew.reply("ask", "fast", completer=told)).messages
    assert answer.type.values(answer) == {"text": "42", "number": 7}
    assert told.wanted == [Completion("fast", ({"role": "user", "content": "?"},), {})]
    told.error = Fault(
        FaultType.UPSTREAM, "no backend has that model; there are: slow", data={"system": "budget"}
    )
    with pytest.raises(Fault) as caught:
        await crew.reply("ask", "fast", completer=told)
    assert caught.value.message == "no backend has that model; there are: slow"
    # What a handler lets out is a fault of its own, and does not speak for the fleet.
    assert caught.value.system_code == "upstream"
    with pytest.raises(Fault, match="no message being handled"):
        await crew.reply("ask", "fast")


async def test_it_asks_so_many_models_at_a_time_and_none_after_its_message(crew: Hosted) -> None:
    told = Told()
    assert await crew.act("ask much", number=3 * MAX_MODEL_QUESTIONS, completer=told) == str(
        3 * MAX_MODEL_QUESTIONS
    )
    assert told.most <= MAX_MODEL_QUESTIONS
    late = Told()
    late.open.clear()
    await crew.act("ask later", completer=late)
    assert "complete()" in await crew.act("hoarded")
    assert late.now == 0


async def test_a_cancel_of_the_caller_reaches_the_handler(crew: Hosted) -> None:
    pid, told = crew.host.pid, Told()
    told.open.clear()
    waiting = asyncio.create_task(crew.host.handle(crew.delivery("ask", completer=told)))
    await until(lambda: told.now)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await crew.act("say", "next") == "next"
    assert (told.now, told.cancelled) == (0, 1)
    assert crew.host.pid == pid


async def test_many_messages_at_once_do_not_mix(crew: Hosted) -> None:
    said = await asyncio.gather(*(crew.act("say", f"number {each}", each) for each in range(200)))
    assert list(said) == [f"number {each}" for each in range(200)]
    assert crew.told == []


async def test_what_it_prints_and_logs_is_the_agents_own_log(
    crew: Hosted, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    pid = crew.host.pid
    with caplog.at_level(logging.INFO):
        assert await crew.act("print", "a line") == "a line"
        assert await crew.act("log", "sk-ant-api03-" + "a" * 80) == "sk-ant-api03-" + "a" * 80
        for words in ("printed a line", "on stderr a line"):
            await until(lambda words=words: any(words in each.message for each in caplog.records))
    forged = [each for each in caplog.records if each.message.startswith("forged")]
    assert [each.name for each in forged] == ["pallas.agents.crew"]
    assert "aaaaaa" not in forged[0].message
    assert not any("\x1b" in each.message or "\x07" in each.message for each in caplog.records)
    out = capfd.readouterr()
    assert "printed" not in out.out + out.err
    assert "Returned" not in out.out
    assert crew.host.pid == pid
