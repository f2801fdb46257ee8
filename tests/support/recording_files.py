"""The files of a recording, checked by the JSON Schema of their format."""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import yaml

from pallas.model import Recording
from pallas.recordings.recording_folder import files_of
from pallas.recordings.recording_schema import recording_schema

_VALIDATOR = jsonschema.Draft202012Validator(recording_schema())


def documents_in(files: Mapping[str, bytes]) -> dict[str, Any]:
    """What the files of YAML hold, by path."""
    return {path: yaml.safe_load(data) for path, data in files.items() if path.endswith(".yaml")}


def mistakes_in(documents: Mapping[str, Any]) -> Iterator[str]:
    """What does not fit the schema."""
    for error in _VALIDATOR.iter_errors(documents):
        yield f"{error.json_path}: {error.message[:200]}"


def assert_fits(recording: Recording) -> None:
    """Fail where a recording is written in a form that the schema does not have."""
    assert list(mistakes_in(documents_in(files_of(recording)))) == []
