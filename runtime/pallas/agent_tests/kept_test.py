"""Makes a test of a recorded run: its question, and what it did as what is expected."""

import re
from math import ceil
from pathlib import Path
from typing import Any, Final

import yaml

from pallas.model import Recording, StepDetail
from pallas.model.codec import Undecodable, loads
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
"""How much more tokens than recorded a run may take, and how much more it may cost."""
_TIME_SLACK: Final = 3.0
"""How much more time than recorded a run may take: that of models varies more than what they say."""
_LEAST_TIME: Final = 10
"""Seconds that each run may take."""
_MOST_KEYS: Final = 50
"""Keys of an object in an answer that its schema names; with more they are values rather than names."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*")
_LONGEST: Final = 150
"""Most characters of a name, so that it is one of a file with its suffix."""
_WORDS: Final = 5
"""Words of a question in the name of its test."""
_TYPES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
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
    return (
        "" if _NAME.fullmatch(name) else f"{name[:60]} is not a name; use letters, digits, `-`, `_` and `.`"
    )


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
        raise NameTaken(f"there is a test {name} already: choose another name, or add --force to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(recording, folder / f"{name}{SUFFIX}")
    pictures = _pictures(recording, name)
    document = {
        "agent": recording.first.agent,
        "ask": recording.first.question,
        **({"images": pictures} if pictures else {}),
        "recording": f"{Path(name).name}{SUFFIX}",
        "expect": expected_of(recording),
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


def expected_of(recording: Recording) -> dict[str, Any]:
    first = recording.first
    if first.status != "ok":
        fault = one_line(first.fault, 200).removesuffix("…")
        return {"fails": fault if fault in first.fault else ""}
    calls = calls_of(recording)
    agents = list(dict.fromkeys(run.agent for run in recording.runs[1:]))
    steps = sum(len(run.steps) for run in recording.runs)
    tokens = tokens_of(recording)
    answer = _expected_answer(first.answer)
    return {
        **({"answer": answer} if answer else {}),
        **({"calls": _expected_calls(calls)} if calls else {}),
        **({"agents": agents} if agents else {}),
        "most": {
            "steps": steps,
            **({"tokens": ceil(tokens * _SLACK)} if tokens else {}),
            "seconds": max(_LEAST_TIME, ceil(first.seconds * _TIME_SLACK)),
            **_dearest(recording),
        },
    }


def _expected_answer(answer: str) -> dict[str, Any]:
    """The schema of an answer that is an object or a list of JSON; its first line of any other."""
    try:
        document = loads(answer)
    except Undecodable:
        document = None
    if isinstance(document, dict | list):
        return {"schema": _schema_of([document])}
    line = one_line(answer, 200)
    return {"contains": [line]} if line and line in answer else {}


def _schema_of(values: list[Any]) -> dict[str, Any]:
    """The JSON Schema that these values have in common: their types, and the keys that each object has."""
    types = list(dict.fromkeys(map(_type_of, values)))
    if "number" in types and "integer" in types:
        types.remove("integer")
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    objects = [each for each in values if isinstance(each, dict)]
    keys = list(dict.fromkeys(key for each in objects for key in each))
    if 0 < len(keys) <= _MOST_KEYS:
        schema["properties"] = {
            key: _schema_of([each[key] for each in objects if key in each]) for key in keys
        }
        if required := [key for key in keys if all(key in each for each in objects)]:
            schema["required"] = required
    if items := [item for each in values if isinstance(each, list) for item in each]:
        schema["items"] = _schema_of(items)
    return schema


def _type_of(value: Any) -> str:
    """The name of a value's type in JSON Schema."""
    return "null" if value is None else _TYPES[type(value)]


def _dearest(recording: Recording) -> dict[str, float]:
    """The most that a run may cost, rounded up to a millionth of a dollar; nothing without prices."""
    cost = cost_of(recording)
    if not cost.cost or cost.unpriced:
        return {}
    return {"usd": ceil(cost.cost * _SLACK * 1_000_000 / USD) / 1_000_000}


def _expected_calls(calls: list[StepDetail]) -> dict[str, Any]:
    """The calls, in their order if none was made at once, with the arguments of each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in calls:
        given = arguments_of(each).items()
        values = {f"$.{key}": value for key, value in given if key.isidentifier() and MASK not in str(value)}
        if values:
            found.setdefault(each.step.name, []).append(values)
    arguments = {name: each[0] if len(each) == 1 else each for name, each in found.items()}
    askers = {(each.step.run_id, each.step.parent) for each in calls}
    one_after_the_other = len(askers) == len(calls) and len({run for run, _ in askers}) == 1
    return {
        "order" if one_after_the_other else "any_order": [each.step.name for each in calls],
        **({"arguments": arguments} if arguments else {}),
    }
