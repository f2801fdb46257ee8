"""The board of todos, made of events."""

from support.fake_fleet import NOON, desk
from support.hostile import HOSTILE
from support.letters import RUN, todo

from pallas.model import Event, RunFinished
from pallas_tui.frame import FleetFrame
from pallas_tui.records.todo_board import CLOSED_FOR, MAX_TODOS, TodoBoard


def board(*events: Event, now: float = NOON) -> TodoBoard:
    made = TodoBoard()
    made.absorb(FleetFrame(desk(), events, now))
    return made


def names(made: TodoBoard, closed: bool = True) -> list[str]:
    return [each.id for each in made.listed(closed)]


def test_what_came_stands_first_then_what_is_waited_for_the_oldest_first() -> None:
    # HC-35
    made = board(
        todo("young", at=NOON - 10),
        todo("old", at=NOON - 90),
        todo("done", at=NOON - 80),
        todo("due", at=NOON - 5),
        todo("due", "raised", at=NOON - 2),
        todo("done", "closed", at=NOON - 1, was_raised=True),
    )
    assert names(made) == ["due", "old", "young", "done"]
    assert names(made, closed=False) == ["due", "old", "young"]
    assert (made.raised, made.open) == (1, 2)
    due = made.listed()[0]
    assert (due.since, due.changed) == (NOON - 5, NOON - 2)


def test_the_end_of_a_run_closes_what_was_left_open_in_it() -> None:
    made = board(todo("a"), todo("b", run_id="other"))
    over = RunFinished(at=NOON, run_id=RUN, agent="greeter", outcome="ok", seconds=1.0)
    assert made.absorb(FleetFrame(desk(), (over,), NOON))
    assert [(each.id, each.status, each.gone) for each in made.listed()] == [
        ("b", "open", False),
        ("a", "closed", True),
    ]


def test_closed_ones_go_after_a_while_and_open_ones_stay() -> None:
    made = board(todo("a"), todo("b", "closed", at=NOON))
    assert not made.absorb(FleetFrame(desk(), (), NOON + CLOSED_FOR - 1))
    assert made.absorb(FleetFrame(desk(), (), NOON + CLOSED_FOR + 1))
    assert names(made) == ["a"]


def test_no_more_than_a_bound_is_kept() -> None:
    made = board(*(todo(f"t{number}", at=NOON + number) for number in range(MAX_TODOS + 10)))
    assert len(made.listed()) == MAX_TODOS
    assert names(made)[0] == "t10"


def test_texts_are_one_safe_line() -> None:
    (only,) = board(todo(HOSTILE, actor=HOSTILE, description=HOSTILE, wait_for=HOSTILE)).listed()
    for text in (only.id, only.actor, only.description, only.wait_for):
        assert text.replace("\u200d", "").isprintable()  # a joiner of two pictures stays
