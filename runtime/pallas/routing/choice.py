"""Chooses the agent that answers a question, for the router and ``pallas route``.

A choice is a value that explains itself. Nothing is run or looked up here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from pallas.config.kinds import RouteBy
from pallas.model import Availability, Fault, FaultType
from pallas.routing.similarity import Similarity, words
from pallas.safe_text import one_line

THRESHOLD: Final = 0.15
"""The least similarity between the question and an agent's example (0 to 1)."""
TIE: Final = 0.02
"""Scores that differ by no more are equal: the agent that is listed first answers."""
NAMED: Final = 0.3
"""Added to an agent's score if the question names one of its capabilities."""
_DESCRIBED: Final = 0.5
"""The weight of similarity to an agent's description, relative to that of an example."""
_SHOWN: Final = 80
MAX_TOLD: Final = 50
"""Most candidates that a Fault lists."""

ChosenBy = Literal["capability", "examples", "model", "fallback", "conversation"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that could be chosen."""

    id: str
    capabilities: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    title: str = ""
    description: str = ""
    status: Availability | None = None  # None if unknown
    reason: str = ""  # why its ``status`` is so


@dataclass(frozen=True, slots=True)
class Scored:
    """How well a candidate fits: ``score`` from 0 up, ``why`` in a few words."""

    agent: str
    score: float
    why: str = ""
    status: Availability | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen ``agent``, the criterion ``by`` and the reason ``why`` in one line."""

    agent: str
    by: ChosenBy
    why: str
    others: tuple[Scored, ...] = ()  # agents that could have been chosen, best first
    left_out: tuple[tuple[str, str], ...] = field(default=())  # agents that could not, each with the reason


def choose(
    question: str,
    candidates: Sequence[Candidate],
    *,
    by: RouteBy,
    capability: str | None = None,
    model_answer: str | None = None,
    fallback: Candidate | None = None,
) -> Choice:
    """Choose which of ``candidates``, given in order of preference, answers ``question``.

    An unavailable agent is never chosen, a busy one only if no ready one fits. With ``capability`` only
    agents that list it are considered, regardless of ``by``. ``model_answer`` is the answer of a model that
    was shown the candidates (``by`` model): one id, else the examples decide. ``fallback`` answers if no
    agent fits.
    Raises Fault (UPSTREAM), with the candidates in its data, if no agent can be chosen.
    """
    left = tuple((each.id, each.reason or "it is unavailable") for each in candidates if not _can(each))
    able, asked_for = [each for each in candidates if _can(each)], ""
    if capability is not None:
        able, asked_for = _listing(able, capability)
    if not able:
        return _fallback(question, candidates, able, left, fallback, capability)
    if capability is not None:
        # All of them have the capability: the examples decide among them.
        scored = _by_examples(question, able)
        if not any(each.score for each in scored):
            return _first(able, scored, "capability", asked_for, left)
        return _best(scored, 0.0, "capability", asked_for, left) or _first(
            able, scored, "capability", asked_for, left
        )
    note = ""
    if by == "model":
        chosen = _read(model_answer, able)
        if chosen is not None:
            others = tuple(Scored(each.id, 0.0, "", each.status) for each in able if each.id != chosen.id)
            return Choice(chosen.id, "model", _busy(chosen, "the model chose it"), others, left)
        what = f"“{one_line(model_answer, _SHOWN)}”, which is none of them" if model_answer else "nothing"
        note = f"the model that was asked answered {what}, so the examples decide: "
    scored = (_by_words if by == "capability" else _by_examples)(question, able)
    went_by: ChosenBy = "capability" if by == "capability" else "examples"
    found = _best(scored, THRESHOLD if went_by == "examples" else 0.0, went_by, note, left)
    return found or _fallback(question, candidates, able, left, fallback, None, note)


def resume(agent: str, candidates: Sequence[Candidate]) -> Choice | str:
    """The choice of the agent that already answers in a conversation, or one line why it cannot continue."""
    known = next((each for each in candidates if each.id == agent), None)
    if known is None:
        return f"{agent}, which answered before, is not among the agents any more"
    if not _can(known):
        return f"{agent}, which answered before, is unavailable ({known.reason or 'no reason is known'})"
    left = tuple((each.id, each.reason or "it is unavailable") for each in candidates if not _can(each))
    others = tuple(
        Scored(each.id, 0.0, "", each.status) for each in candidates if each.id != agent and _can(each)
    )
    return Choice(
        agent, "conversation", _busy(known, "it answered before in this conversation"), others, left
    )


def _can(candidate: Candidate) -> bool:
    return candidate.status != "unavailable"


def _busy(candidate: Candidate, why: str) -> str:
    return f"{why}; it is busy" if candidate.status == "busy" else why


def _listing(able: Sequence[Candidate], capability: str) -> tuple[list[Candidate], str]:
    """The agents that list the capability; if there are none, those whose own words contain it."""
    shown = one_line(capability, _SHOWN)
    wanted = capability.strip().lower()
    exact = [each for each in able if wanted in each.capabilities]
    if exact:
        return exact, f"it lists the capability {shown}"
    words_of_capability = words(capability)
    near = [each for each in able if words_of_capability and words_of_capability <= words(_own(each))]
    return near, f"no agent lists the capability {shown}, but its description mentions it"


def _own(candidate: Candidate) -> str:
    return " ".join((candidate.title, candidate.description, *candidate.capabilities))


def _by_examples(question: str, able: Sequence[Candidate]) -> list[Scored]:
    """Score by the most similar example, and a little by the agent's description."""
    question_words = words(question)
    likeness, known = _compared(tuple((each.examples, _own(each)) for each in able))
    found = []
    for each, (examples, own) in zip(able, known, strict=True):
        score, at = likeness.best(question_words, examples)
        described = _DESCRIBED * likeness.of(question_words, own)
        if score >= described:
            why = f"like its example “{one_line(each.examples[at], _SHOWN)}”" if score else ""
        else:
            score, why = described, "similar to its description"
        if named := _named(question_words, each):
            score, why = score + NAMED, "; ".join(part for part in (why, named) if part)
        found.append(Scored(each.id, round(min(score, 1.0), 3), why, each.status))
    return found


@lru_cache(maxsize=32)
def _compared(
    texts: tuple[tuple[tuple[str, ...], str], ...],
) -> tuple[Similarity, tuple[tuple[tuple[frozenset[str], ...], frozenset[str]], ...]]:
    """The words of the agents' examples and descriptions, cached between questions."""
    known = tuple((tuple(words(text) for text in examples), words(own)) for examples, own in texts)
    return Similarity(text for examples, own in known for text in (*examples, own)), known


def _by_words(question: str, able: Sequence[Candidate]) -> list[Scored]:
    """Score by capabilities that the question names; if it names none, by descriptions."""
    question_words = words(question)
    named = [(each, _named(question_words, each)) for each in able]
    if any(why for _, why in named):
        return [Scored(each.id, 1.0 if why else 0.0, why, each.status) for each, why in named]
    own = {each.id: words(_own(each)) for each in able}
    likeness = Similarity(own.values())
    scores = [(each, likeness.of(question_words, own[each.id])) for each in able]
    return [
        Scored(each.id, round(score, 3), "similar to its description" if score else "", each.status)
        for each, score in scores
    ]


def _named(question_words: frozenset[str], candidate: Candidate) -> str:
    """Which capability of the candidate the question names; of several the longest."""
    found = ""
    most = 0
    for capability in candidate.capabilities:
        parts = words(capability)
        if len(parts) > most and parts <= question_words:
            found, most = capability, len(parts)
    return f"the question names its capability {found}" if found else ""


def _best(
    scored: Sequence[Scored],
    least: float,
    by: ChosenBy,
    note: str,
    left: tuple[tuple[str, str], ...],
) -> Choice | None:
    """The best agent that fits, ready before busy; None if none fits."""
    fitting = [each for each in scored if each.score > 0 and each.score >= least]
    ready = [each for each in fitting if each.status != "busy"]
    if not fitting:
        return None
    best = max(each.score for each in (ready or fitting))
    tied = [each for each in (ready or fitting) if each.score >= best - TIE]
    chosen = tied[0]
    why = note + (f"; {chosen.why}" if note and not note.endswith(": ") else chosen.why)
    why += f" ({chosen.score:.2f})"
    if len(tied) > 1:
        why += f"; {', '.join(each.agent for each in tied[1:])} would do as well and is listed later"
    better = [each for each in fitting if each.status == "busy" and each.score > chosen.score + TIE]
    if ready and better:
        why += f"; {better[0].agent} fits better ({better[0].score:.2f}) and is busy"
    elif not ready:
        why += "; it is busy, as are all that fit"
    others = tuple(sorted((each for each in scored if each is not chosen), key=lambda each: -each.score))
    return Choice(chosen.agent, by, why, others, left)


def _first(
    able: Sequence[Candidate],
    scored: Sequence[Scored],
    by: ChosenBy,
    why: str,
    left: tuple[tuple[str, str], ...],
) -> Choice:
    """The first of several equal agents."""
    chosen = next((each for each in able if each.status != "busy"), able[0])
    if len(able) > 1:
        why += f"; of {len(able)} that do, it is listed first" + (
            " of those that are not busy" if able[0] is not chosen else ""
        )
    others = tuple(each for each in scored if each.agent != chosen.id)
    return Choice(chosen.id, by, _busy(chosen, why), others, left)


def _read(model_answer: str | None, able: Sequence[Candidate]) -> Candidate | None:
    """The candidate whose id alone is the model's answer; quotes and punctuation around it are ignored."""
    answer = (model_answer or "").strip().strip("`'\"“”*.<> \n").lower()
    return next((each for each in able if each.id == answer), None)


def _fallback(
    question: str,
    candidates: Sequence[Candidate],
    able: Sequence[Candidate],
    left: tuple[tuple[str, str], ...],
    fallback: Candidate | None,
    capability: str | None,
    note: str = "",
) -> Choice:
    """Choose the fallback, if it is available. Raises Fault (UPSTREAM) otherwise."""
    if capability is not None:
        problem = f"no available agent has the capability {one_line(capability, _SHOWN)}"
    elif able:
        problem = f"{note}no agent fits “{one_line(question, _SHOWN)}”"
    else:
        problem = "no agent is available now" if candidates else "there is no agent to choose from"
    if fallback is not None and _can(fallback):
        others = tuple(Scored(each.id, 0.0, "", each.status) for each in able if each.id != fallback.id)
        why = _busy(fallback, f"{problem}; {fallback.id} is the fallback")
        return Choice(fallback.id, "fallback", why, others, left)
    shown = [
        f"{each.id} ({dict(left)[each.id]})" if each.id in dict(left) else each.id for each in candidates
    ]
    raise Fault(
        FaultType.UPSTREAM,
        f"{problem}; the candidates were {', '.join(shown[:MAX_TOLD])}" if shown else problem,
        retryable=not able and bool(left),
        data={
            "candidates": [
                {"agent": each.id, "status": each.status or "unknown", "reason": each.reason}
                for each in candidates[:MAX_TOLD]
            ],
        },
    )
