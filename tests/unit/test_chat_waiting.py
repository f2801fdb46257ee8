"""What a chat says while its model is silent, is asked again, or begins its answer again."""

from typing import Any

from support.fake_fleet import desk, step_event

from pallas.model import Event, ModelRetry, RunFinished, RunStarted, StepStarted, TextDelta
from pallas.runs.retried_text import BEGINS_AGAIN
from pallas_tui.chat.answer_runs import MAX_RUNS, Runs
from pallas_tui.chat.call_tree import Tree
from pallas_tui.chat.chat_entry import ChatEntry, ChatRun
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import Feed
from pallas_tui.runs.run_tree import RunTreeRow
from pallas_tui.text import UNICODE
from pallas_tui.widgets.feed.feed_view import feed_line

TRACE = "ab" * 16
RUN: dict[str, Any] = {"run_id": "r1", "agent": "helper"}


def heard(*messages: str) -> ChatRun:
    run = ChatRun(ChatEntry("user", "hi", 0.0), 0.0, 0.0, Tree("helper"))
    for second, message in enumerate(messages, 1):
        run.hear(message, float(second))
    return run


def retry(at: float = 100.0) -> ModelRetry:
    return ModelRetry(**RUN, at=at, reason="HTTP 429", retry=2, retries=4, wait=28.0)


def runs(*events: Event) -> Runs:
    found = Runs()
    found.absorb((RunStarted(**RUN, trace_id=TRACE), *events))
    return found


def test_the_wait_before_a_retry_counts_down_and_ends_with_it() -> None:
    found = runs(retry())
    assert found.waits_for(TRACE, 100.0) == "HTTP 429, retry 2 of 4 in 28 s"
    assert found.waits_for(TRACE, 126.5) == "HTTP 429, retry 2 of 4 in 2 s"
    assert found.waits_for(TRACE, 128.0) == ""
    assert found.waits_for("cd" * 16, 100.0) == ""


def test_a_run_that_goes_on_or_ends_waits_no_longer() -> None:
    step = StepStarted(**RUN, actor="helper", step=2, kind="tool")
    assert runs(retry(), step).waits_for(TRACE, 100.0) == ""
    assert runs(retry(), RunFinished(**RUN, outcome="ok", seconds=1.0)).waits_for(TRACE, 100.0) == ""


def test_retries_of_runs_whose_end_was_lost_are_bounded() -> None:
    found = Runs()
    found.absorb(
        ModelRetry(run_id=f"r{n}", agent="helper", reason="x", retry=1, retries=2, wait=1.0)
        for n in range(MAX_RUNS + 10)
    )
    assert len(found._retries) == MAX_RUNS


def test_only_a_run_whose_model_is_to_write_awaits_text() -> None:
    assert (heard("helper step 1 (llm)").awaits_text, heard("helper step 1 (llm)").heard) == (True, 1.0)
    assert heard("helper step 1 (llm)", "helper » Well").awaits_text
    assert not heard("helper step 2 (tool)").awaits_text
    assert not heard("helper » Well", "docs/search: started").awaits_text


def test_the_feed_says_how_long_a_model_is_silent() -> None:
    feed = Feed()

    def line(now: float, *events: Event) -> str:
        feed.absorb(FleetFrame(desk(), events, now))
        row = RunTreeRow(feed.runs[0], 0, 1)
        return "".join(text for text, _ in feed_line(row, True, 80, now, UNICODE))

    step = step_event(RUN["run_id"], 1, 100.0, agent="helper")
    started = RunStarted(**RUN, at=100.0, trace_id=TRACE)
    assert "no text" not in line(109.0, started, step)
    assert "1. scripted · no text for 12 s" in line(112.0)
    assert "no text" not in line(115.0, TextDelta(**RUN, at=112.0, text="Well"))
    assert "no text" not in line(140.0, retry(at=113.0))  # its own line says how long it waits
    assert "no text for 10 s" in line(151.0)
    assert "no text" not in line(151.0, RunFinished(**RUN, at=151.0, outcome="ok", seconds=51.0))


def test_an_answer_that_begins_again_is_one_text_with_a_mark() -> None:
    again = f"helper » \n\n{BEGINS_AGAIN}\n\n"
    assert heard("helper » Well, ", f"{again}No.").text == f"{BEGINS_AGAIN}\n\nNo."
    run = heard("helper » First.", "helper step 2 (llm)", "helper » Well, ", f"{again}No", f"{again}Yes.")
    assert run.text == f"First.\n\n{BEGINS_AGAIN}\n\nYes."
