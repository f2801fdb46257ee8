"""Questions to people over the control API: an attached workbench answers them with the full token."""

import pytest
from support.control import READ, Served, serving
from support.fake_fleet import NOON, FakeFleet
from support.waiting import until

from pallas.model import Fault, FaultType, FleetPort, Page, QuestionAsked
from pallas.model.questions import Question
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource

SECRET = "Send 4711 to Acme"
QUESTION = Question(
    id="q-0123456789abcdef01234567",
    kind="form",
    run_id="r1",
    agent="research",
    path=("concierge",),
    message=SECRET,
    schema={"type": "object", "properties": {"iban": {"type": "string"}}},
    asked_at=NOON,
    expires_at=NOON + 60,
)


async def attached(served: Served, token: str) -> RemoteFleet:
    fleet = RemoteFleet(served.url, TokenSource(served.url, token))
    fleet.start()
    await until(lambda: fleet.snapshot().agents and not fleet.snapshot().stale)
    return fleet


def asked(fleet: FleetPort) -> list[QuestionAsked]:
    return [each for each in fleet.since(0).events if isinstance(each, QuestionAsked)]


async def test_a_full_token_reads_and_answers_them_once() -> None:
    local = FakeFleet()
    async with serving(local) as served:
        fleet = await attached(served, "full-token-of-the-tests")
        try:
            local.ask_people(QUESTION)
            (event,) = await until(lambda: asked(fleet))
            assert (event.question, event.message) == (QUESTION.id, SECRET)
            assert await fleet.questions("open") == Page((QUESTION,))
            assert await fleet.question(QUESTION.id) == QUESTION
            ended = await fleet.answer_question(QUESTION.id, "accept", content={"iban": "DE02"})
            assert (ended.state, ended.action, ended.content) == ("answered", "accept", {"iban": "DE02"})
            assert await fleet.questions("open") == Page(())
            with pytest.raises(Fault, match="answered already"):
                await fleet.answer_question(QUESTION.id, "decline")
        finally:
            fleet.stop()


async def test_a_token_that_may_only_look_neither_reads_nor_answers_them() -> None:
    local = FakeFleet()
    async with serving(local) as served:
        fleet = await attached(served, READ)
        try:
            local.ask_people(QUESTION)
            (event,) = await until(lambda: asked(fleet))
            assert (event.question, event.message) == (QUESTION.id, "")
            for work in (fleet.questions("open"), fleet.answer_question(QUESTION.id, "accept")):
                with pytest.raises(Fault) as refused:
                    await work
                assert refused.value.type is FaultType.AUTH
            async with served.client(READ) as http:
                answer = await http.post(f"/questions/{QUESTION.id}/answer", json={"action": "accept"})
                assert answer.status_code == 403
                assert SECRET not in answer.text
            assert local.asked_people[QUESTION.id].state == "open"
        finally:
            fleet.stop()


async def test_an_answer_of_another_kind_is_refused() -> None:
    local = FakeFleet()
    local.ask_people(QUESTION)
    async with serving(local) as served, served.client() as http:
        for body in ({"action": "perhaps"}, {}, {"action": "accept", "content": "DE02"}):
            answer = await http.post(f"/questions/{QUESTION.id}/answer", json=body)
            assert answer.status_code == 400, body
        assert local.asked_people[QUESTION.id].state == "open"
