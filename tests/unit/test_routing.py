"""Who is chosen among agents, for which reason, and what is told of it."""

from dataclasses import replace

import pytest

from pallas.model import Fault, FaultType
from pallas.routing.choice import Candidate, Choice, choose, resume
from pallas.routing.route_prompt import MAX_QUESTION, route_prompt
from pallas.routing.similarity import Similarity, words

CODER = Candidate(
    "coder",
    ("coding", "code-review"),
    (
        "Fix the failing test in test_login.py",
        "Why does this function raise a KeyError?",
        "Refactor this class into two",
        "Write a unit test for the parser",
    ),
    "Coder",
    "Writes and repairs code of this project",
    "ready",
)
WRITER = Candidate(
    "writer",
    ("writing", "editing"),
    (
        "Write a blog post about our release",
        "Make this paragraph shorter",
        "Proofread my cover letter",
        "Draft an e-mail to a customer about the delay",
    ),
    "Writer",
    "Writes and edits prose",
    "ready",
)
OPS = Candidate(
    "ops",
    ("deploy", "kubernetes"),
    ("Restart the staging server", "Why is the pod crash looping?", "Roll back the last deployment"),
    "Operations",
    "Looks after servers and deployments",
    "ready",
)
GERMAN = Candidate(
    "german",
    ("deutsch",),
    ("Wie wird das Wetter morgen?", "Schreibe einen Brief an das Finanzamt"),
    "Deutsch",
    "Beantwortet Fragen auf Deutsch",
    "ready",
)
ALL = (CODER, WRITER, OPS, GERMAN)


def like(candidate: Candidate, **fields: object) -> Candidate:
    return replace(candidate, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "agent"),
    [
        ("test_signup fails with a ValueError, can you fix it?", "coder"),
        ("please refactor the parser", "coder"),
        ("add unit tests for login", "coder"),
        ("Why does my code raise a TypeError in this class?", "coder"),
        ("proofread this letter", "writer"),
        ("shorten the following paragraphs", "writer"),
        ("write a post announcing our new release", "writer"),
        ("the pods keep crashing", "ops"),
        ("roll back staging", "ops"),
        ("deploy the new release to production", "ops"),
        ("Schreib einen Brief an meine Bank", "german"),
        ("Wie ist das Wetter heute?", "german"),
    ],
)
def test_a_question_goes_to_the_agent_whose_examples_it_is_like(question: str, agent: str) -> None:
    choice = choose(question, ALL, by="examples")
    assert (choice.agent, choice.by) == (agent, "examples")
    assert "example “" in choice.why or "capability" in choice.why


@pytest.mark.parametrize("question", ["Tell me a joke", "bake a cake with chocolate", "hello", "?!", ""])
def test_what_is_like_no_example_is_given_to_nobody(question: str) -> None:
    with pytest.raises(Fault) as refused:
        choose(question, ALL, by="examples")
    fault = refused.value
    assert (fault.type, fault.retryable) == (FaultType.UPSTREAM, False)
    assert [each["agent"] for each in fault.data["candidates"]] == ["coder", "writer", "ops", "german"]
    assert fault.message.endswith("the candidates were coder, writer, ops, german")


def test_the_fallback_answers_where_nobody_fits_and_it_is_said() -> None:
    choice = choose("bake a cake", (CODER, WRITER), by="examples", fallback=OPS)
    assert (choice.agent, choice.by) == ("ops", "fallback")
    assert choice.why == "no agent fits “bake a cake”; ops is the fallback"
    with pytest.raises(Fault):
        choose("bake a cake", (CODER,), by="examples", fallback=like(OPS, status="unavailable"))


def test_a_capability_is_met_exactly_before_any_word_is_looked_at() -> None:
    choice = choose("whatever", ALL, by="examples", capability="code-review")
    assert (choice.agent, choice.by, choice.why) == (
        "coder",
        "capability",
        "it lists the capability code-review",
    )
    assert choice.others == ()
    by_words = choose("whatever", ALL, by="examples", capability="prose")
    assert by_words.agent == "writer"
    assert by_words.why == "no agent lists the capability prose, but its description mentions it"
    with pytest.raises(Fault, match="no available agent has the capability juggling"):
        choose("whatever", ALL, by="examples", capability="juggling")


def test_of_many_with_a_capability_the_one_whose_examples_fit_answers() -> None:
    both = (like(WRITER, capabilities=("text",)), like(CODER, capabilities=("text",)))
    assert choose("refactor the parser", both, by="examples", capability="text").agent == "coder"
    first = choose("bake a cake", both, by="examples", capability="text")
    assert first.agent == "writer"
    assert first.why == "it lists the capability text; of 2 that do, it is listed first"


def test_by_capability_goes_by_what_the_question_names_then_by_the_agents_own_words() -> None:
    named = choose("do a code review of this", ALL, by="capability")
    assert named.agent == "coder"
    assert named.why.startswith("the question names its capability code-review")
    own = choose("look after my servers", ALL, by="capability")
    assert (own.agent, own.by) == ("ops", "capability")
    assert own.why.startswith("similar to its description")
    with pytest.raises(Fault):
        choose("bake a cake", ALL, by="capability")


def test_who_is_unavailable_is_left_out_by_name_and_never_chosen() -> None:
    gone = like(CODER, status="unavailable", reason="the model's key was refused")
    choice = choose("refactor the parser in prose", (gone, WRITER), by="examples", fallback=WRITER)
    assert choice.agent == "writer"
    assert choice.left_out == (("coder", "the model's key was refused"),)
    with pytest.raises(Fault) as refused:
        choose("refactor the parser", (gone,), by="examples")
    assert refused.value.retryable
    assert "no agent is available now; the candidates were coder (the model's key was refused)" in str(
        refused.value
    )
    with pytest.raises(Fault, match="there is no agent to choose from"):
        choose("refactor the parser", (), by="examples")


def test_one_that_is_busy_answers_only_where_nobody_ready_fits() -> None:
    busy = like(CODER, status="busy")
    alone = choose("refactor the parser", (busy, WRITER), by="examples")
    assert alone.agent == "coder"
    assert alone.why.endswith("it is busy, as are all that fit")
    other = like(CODER, id="second", examples=("Refactor the parser, or something else entirely",))
    instead = choose("refactor this class into two", (busy, other), by="examples")
    assert instead.agent == "second"
    assert "coder fits better" in instead.why
    assert instead.why.endswith("and is busy")


def test_of_those_that_are_as_good_the_one_listed_first_answers_and_it_is_said() -> None:
    twin = like(CODER, id="twin")
    choice = choose("refactor this class", (twin, CODER), by="examples")
    assert choice.agent == "twin"
    assert choice.why.endswith("; coder would do as well and is listed later")
    assert choose("refactor this class", (CODER, twin), by="examples").agent == "coder"


@pytest.mark.parametrize("said", ["ops", " OPS\n", "`ops`", "“ops”.", "**ops**"])
def test_a_model_chooses_with_an_id_and_nothing_else(said: str) -> None:
    choice = choose("anything", ALL, by="model", model_answer=said)
    assert (choice.agent, choice.by, choice.why) == ("ops", "model", "the model chose it")
    assert [each.agent for each in choice.others] == ["coder", "writer", "german"]


@pytest.mark.parametrize("said", ["I would take ops", "nobody", "", None, "ops, coder", "x" * 10_000])
def test_what_is_no_id_leaves_it_to_the_examples_and_says_so(said: str | None) -> None:
    choice = choose("refactor the parser", ALL, by="model", model_answer=said)
    assert (choice.agent, choice.by) == ("coder", "examples")
    assert choice.why.startswith("the model that was asked answered ")
    assert "so the examples decide: like its example" in choice.why
    assert len(choice.why) < 500


def test_a_model_cannot_choose_who_is_unavailable() -> None:
    gone = like(OPS, status="unavailable")
    choice = choose("refactor the parser", (CODER, gone), by="model", model_answer="ops")
    assert choice.agent == "coder"


def test_the_model_is_shown_the_candidates_and_a_question_of_bounded_length() -> None:
    text = route_prompt("x" * 100_000, ALL)
    assert "- coder: Writes and repairs code" in text
    assert "  can: coding, code-review" in text
    assert "for example: Refactor this class into two" in text
    assert text.endswith("The id of one of: coder, writer, ops, german")
    assert len(text) < MAX_QUESTION + 4_000


def test_a_conversation_stays_unless_its_agent_is_unavailable() -> None:
    stays = resume("writer", ALL)
    assert isinstance(stays, Choice)
    assert (stays.agent, stays.by) == ("writer", "conversation")
    busy = resume("writer", (CODER, like(WRITER, status="busy")))
    assert isinstance(busy, Choice)
    assert busy.why.endswith("it is busy")
    gone = resume("writer", (CODER, like(WRITER, status="unavailable", reason="it is stopped")))
    assert gone == "writer, which answered before, is unavailable (it is stopped)"
    assert resume("writer", (CODER,)) == "writer, which answered before, is not among the agents any more"


def test_words_are_told_apart_by_their_stems_in_any_script() -> None:
    assert words("Tests, tested & TESTING of KeyErrors") == words("test key errors")
    assert words("the of and is") == frozenset()
    assert words("数据库查询") & words("查询数据")
    assert words("x" * 100_000)


def test_likeness_is_from_nothing_to_the_same() -> None:
    texts = [words("refactor the parser"), words("write a letter")]
    likeness = Similarity(texts)
    assert likeness.of(texts[0], texts[0]) == pytest.approx(1.0)
    assert likeness.of(texts[0], texts[1]) == 0.0
    assert likeness.best(texts[1], texts) == (pytest.approx(1.0), 1)
    assert likeness.best(frozenset(), texts) == (0.0, -1)
