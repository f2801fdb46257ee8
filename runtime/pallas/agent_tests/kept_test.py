"""Makes a test of a recorded run: its question, and what it did as what is expected."""

import re
from math import ceil
from pathlib import Path
from typing import Any, Final

import yaml

from pallas.model import Recording, StepDetail
from pallas.model.money import USD
from pallas.model.redaction import MASK
from pallas.recordings.recording_documents import PICTURE, documents_of
from pallas.recordings.recording_folder import PICTURES, write
from pallas.safe_text import one_line

from .agent_test_file import FOLDER
from .expectations import arguments_of, calls_of, cost_of, tokens_of

SUFFIX: Final = ".recording"
"""What the folder of a test's recording is called behind the test's name."""
_SLACK: Final = 1.5
"""How much more tokens than recorded a run may take."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*")
_LONGEST: Final = 150
"""Most characters of a name, so that it is one of a file with its suffix."""
_WORDS: Final = 5
"""Words of a question in the name of its test."""
_HEAD: Final = (
    "# Kept from a run. `pallas test {name}` runs it; keep what matters below `expect:`, "
    "and delete the rest.\n"
)


class NameTaken(ValueError):
    """There is a test of that name. The message says so and what to do."""


def name_problem(name: str) -> str:
    """Why a test cannot have that name; empty if it can."""
    if len(name) > _LONGEST:
        return f"{name[:60]} has {len(name)} characters; at most {_LONGEST}"
    return "" if _NAME.fullmatch(name) else f"{name[:60]} is no name; use letters, digits, `-`, `_` and `.`"


def name_of(recording: Recording) -> str:
    """The name of a test that is given none: of its agent and its question."""
    words = re.findall(r"[a-z0-9]+", recording.first.question.lower())[:_WORDS]
    return "-".join([recording.first.agent, *words])


def is_taken(root: Path, name: str) -> bool:
    """Whether a project has a test of that name, or a recording where that of the test would be."""
    return any((root / FOLDER / f"{name}{suffix}").exists() for suffix in (".yaml", SUFFIX))


def keep(recording: Recording, root: Path, name: str, *, replaces: bool = False) -> Path:
    """Write the recording and a test of it into a project's folder; returns the file of the test.

    Raises NameTaken for a name that is in use, unless it ``replaces`` that test, and OSError.
    """
    folder = root / FOLDER
    path = folder / f"{name}.yaml"
    if is_taken(root, name) and not replaces:
        raise NameTaken(f"there is a test {name} already: choose another name, or say --force to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(recording, folder / f"{name}{SUFFIX}")
    pictures = _pictures(recording, name)
    document = {
        "agent": recording.first.agent,
        "ask": recording.first.question,
        **({"images": pictures} if pictures else {}),
        "recording": f"{Path(name).name}{SUFFIX}",
        "expect": _expected(recording),
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    path.write_text(_HEAD.format(name=name) + text, "utf-8")
    return path


def _pictures(recording: Recording, name: str) -> list[str]:
    """The pictures of the question among the files of the recording, relative to the test."""
    documents = documents_of(recording)
    images = documents.parts[f"{documents.head['runs'][0]}/run"].get("images", ())
    files = (str(each["data"]).removeprefix(PICTURE) for each in images)
    return [f"{Path(name).name}{SUFFIX}/{PICTURES}/{file}" for file in files]


def _expected(recording: Recording) -> dict[str, Any]:
    first = recording.first
    if first.status != "ok":
        fault = one_line(first.fault, 200).removesuffix("…")
        return {"fails": fault if fault in first.fault else ""}
    calls = calls_of(recording)
    agents = list(dict.fromkeys(run.agent for run in recording.runs[1:]))
    line = one_line(first.answer, 200)
    steps = sum(len(run.steps) for run in recording.runs)
    tokens = tokens_of(recording)
    return {
        **({"answer": {"contains": [line]}} if line and line in first.answer else {}),
        **({"calls": _expected_calls(calls)} if calls else {}),
        **({"agents": agents} if agents else {}),
        "most": {
            "steps": steps,
            **({"tokens": ceil(tokens * _SLACK)} if tokens else {}),
            **_dearest(recording),
        },
    }


def _dearest(recording: Recording) -> dict[str, float]:
    """The most that a run may cost, rounded up to a millionth of a dollar; nothing without prices."""
    cost = cost_of(recording)
    if not cost.cost or cost.unpriced:
        return {}
    return {"usd": ceil(cost.cost * _SLACK * 1_000_000 / USD) / 1_000_000}


def _expected_calls(calls: list[StepDetail]) -> dict[str, Any]:
    """The calls, in their order if none was made at once, with the arguments of each tool's first call."""
    arguments: dict[str, dict[str, Any]] = {}
    for each in calls:
        given = arguments_of(each).items()
        values = {f"$.{key}": value for key, value in given if key.isidentifier() and MASK not in str(value)}
        if values and each.step.name not in arguments:
            arguments[each.step.name] = values
    askers = {(each.step.run_id, each.step.parent) for each in calls}
    one_after_the_other = len(askers) == len(calls) and len({run for run, _ in askers}) == 1
    return {
        "order" if one_after_the_other else "any_order": [each.step.name for each in calls],
        **({"arguments": arguments} if arguments else {}),
    }
