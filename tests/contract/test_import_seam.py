"""What ``pallas.processes.import_seam`` postpones comes when it is asked for, and is the same then."""

import ast
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pallas.processes.import_seam import CALLED_LATER, LAZY_PACKAGES, exports_of

_ALL = """
import importlib, json, sys
from pallas.processes import import_seam

postponed, backwards = sys.argv[1] == "postponed", sys.argv[2] == "backwards"
if postponed:
    import_seam.install()
found = {}
for package in sorted(import_seam.LAZY_PACKAGES, reverse=backwards):
    module = importlib.import_module(package)
    for name in sorted(json.loads(sys.argv[3])[package], reverse=backwards):
        value = getattr(module, name)
        place = getattr(value, "__module__", "")
        found[f"{package}.{name}"] = f"{place}.{getattr(value, '__qualname__', '')} {type(value).__name__}"
print(json.dumps(found, sort_keys=True))
"""

_MODELS = """
import gc, importlib, sys
from pallas.processes import import_seam

import_seam.install()
from pydantic import BaseModel, TypeAdapter
from pydantic._internal._mock_val_ser import MockValSer

for name in ("fast_agent.core.fastagent", "fast_agent.core.managed_runtime", "fastapi.openapi.models",
             "fastmcp.server.server", "mcp", "mcp_types.methods"):
    importlib.import_module(name)

found = [each for each in gc.get_objects()
         if isinstance(each, type) and issubclass(each, BaseModel)
         and each.__module__.partition(".")[0] in import_seam.LIBRARIES]
assert {each.__module__.partition(".")[0] for each in found} == import_seam.LIBRARIES
later = [each for each in found if not each.__pydantic_complete__]
assert len(later) > 0.8 * len(found), (len(later), len(found))
for each in later:
    if not each.__pydantic_generic_metadata__["parameters"]:
        each.model_rebuild()
adapters = [each for each in gc.get_objects() if isinstance(each, TypeAdapter)]
assert sum(isinstance(each.validator, MockValSer) for each in adapters) > 10
for each in adapters:
    each.rebuild()
    each.validator.validate_python, each.serializer.to_python


class Own(importlib.import_module("mcp_types").Tool):
    more: int


assert Own.__pydantic_complete__
try:
    class Wrong(BaseModel):
        value: sys
except Exception as error:
    print(type(error).__name__)
"""

_DATACLASSES = """
import gc, importlib, inspect, json, sys
from pallas.processes import import_seam

postponed = sys.argv[1] == "postponed"
if postponed:
    import_seam.postpone_methods()
    import_seam.postpone_methods()
for name in ("fast_agent.core.fastagent", "fastmcp.server.server", "filelock", "h11", "mcp", "openai",
             "pallas.cli.served_fleet"):
    importlib.import_module(name)

found = [each for each in gc.get_objects()
         if isinstance(each, type) and "__dataclass_params__" in vars(each)
         and getattr(sys.modules.get(each.__module__), each.__name__, None) is each
         and each.__module__.partition(".")[0] in import_seam.DATACLASSES_OF]
late = [each for each in found if import_seam._LateMethod in map(type, vars(each).values())]
assert len(late) > 0.8 * len(found) if postponed else not late, (len(late), len(found))
names = ("__init__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__setattr__",
         "__delattr__")
said = {}
def signature(cls):
    try:
        return str(inspect.signature(cls)).split(" at 0x")[0]
    except ValueError as error:
        return str(error)
for each in found:
    methods = {name: getattr(each, name) for name in names if name in vars(each)}
    assert all(vars(each)[name] is method for name, method in methods.items()), each
    said[f"{each.__module__}.{each.__qualname__}"] = [signature(each)] + [
        [name, method.__module__, method.__qualname__, method.__code__.co_code.hex(),
         method.__code__.co_names, list(getattr(method, "__annotations__", ()))]
        for name, method in methods.items() if hasattr(method, "__code__")]
print(json.dumps(said, sort_keys=True))
"""

_LATE = """
import sys
from pallas.processes import import_seam

sys.path.insert(0, sys.argv[1])
import_seam.DATACLASSES_OF = {"mine", "wrong"}
import_seam.postpone_methods()
import copy, pickle
from dataclasses import FrozenInstanceError, replace
from mine import Derived, Named, Plain, Point

assert all(type(vars(each)["__init__"]) is import_seam._LateMethod for each in (Derived, Plain, Point))
assert Point.__doc__ == "A point." and Plain.__doc__ == "Plain"
one = Derived(1, z=3)
assert type(vars(Point)["__init__"]) is import_seam._LateMethod  # a class compiles its own methods only
assert (one.x, one.y, one.z) == (1, 2, 3) and repr(one) == "Derived(x=1, y=2, z=3)"
assert one == Derived(1, 2, z=3) != Point(1, 2) and hash(one) == hash(replace(one)) and Point(1) < Point(2)
assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
assert repr(Named("a")) == "named a" and Named("a") == Named("a") and Plain([]) == Plain()
try:
    one.x = 5
except FrozenInstanceError as error:
    print(error)
try:
    import wrong
except TypeError as error:
    print(error)
"""

_MINE = """
from dataclasses import dataclass, field

@dataclass(frozen=True, slots=True, order=True)
class Point:
    "A point."
    x: int
    y: int = 2

@dataclass(frozen=True, slots=True)
class Derived(Point):
    z: int = field(kw_only=True)

@dataclass
class Plain:
    self: list[int] = field(default_factory=list)

@dataclass
class Named:
    name: str
    def __repr__(self):
        return f"named {self.name}"
"""

_WRONG = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Wrong:
    x: int
    def __setattr__(self, name, value): ...
"""

_TABLES = """
import json, sys
from pallas.processes import import_seam

if sys.argv[1] == "late":
    import_seam.install()
import fastmcp.server.server, mcp.client.session, mcp.server.elicitation
import mcp_types.methods
from mcp.client.session import _later_revision_fields
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

for module in import_seam.LATE_TYPES:
    assert ("InitializeRequest" in vars(sys.modules[module])) == (sys.argv[1] != "late")

def in_order(value):
    if isinstance(value, dict):  # which of two equal literals typing has seen first decides their order
        return {name: sorted(each) if name == "enum" else in_order(each) for name, each in value.items()}
    return [in_order(each) for each in value] if isinstance(value, list) else value

methods, said = mcp_types.methods, {}
mcp.server.elicitation._validate_rendered_properties({"one": {"type": "string"}})
try:
    mcp.server.elicitation._validate_rendered_properties({"properties": {"one": {"type": "array"}}})
except TypeError as error:
    said["refused"] = str(error)
for name in ("CLIENT_NOTIFICATIONS", "CLIENT_REQUESTS", "CLIENT_RESULTS", "SERVER_NOTIFICATIONS",
             "SERVER_REQUESTS", "SERVER_RESULTS"):
    table = getattr(methods, name)
    assert list(table.items()) == [(key, table[key]) for key in table] == [*zip(table, table.values())]
    for key, row in table.items():
        said[f"{name} {key}"] = repr(row), in_order(methods._adapter(row).json_schema())
for method in methods.MONOLITH_REQUESTS:
    for version in KNOWN_PROTOCOL_VERSIONS:
        said[f"{method} {version}"] = sorted(_later_revision_fields(method, version))
call = methods.parse_client_request("tools/call", "2025-06-18", {"name": "one", "arguments": {}})
said["call"] = repr(call), repr(methods.parse_server_result("tools/call", "2025-06-18", {"content": []}))
print(json.dumps(said, sort_keys=True))
"""


def _ran(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _names(package: str) -> dict[str, tuple[str, str]]:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    names = exports_of(Path(spec.origin).read_bytes())
    assert names, f"the __init__ of {package} does more than to import names"
    modules = {each.stem for each in Path(spec.origin).parent.iterdir()}
    # A module that is imported becomes an attribute of its package and would hide the name.
    assert not {name for name, (place, _) in names.items() if place and name in modules}
    return names


@pytest.mark.slow
def test_the_names_of_a_lazy_package_are_those_that_it_has_without_us() -> None:
    names = json.dumps({package: sorted(_names(package)) for package in LAZY_PACKAGES})
    ours = _ran(_ALL, "postponed", "forwards", names)
    assert len(json.loads(ours)) > 500
    assert ours == _ran(_ALL, "postponed", "backwards", names) == _ran(_ALL, "at once", "forwards", names)


@pytest.mark.slow
def test_a_lazy_package_is_used_as_any_other() -> None:
    code = """
from pallas.processes import import_seam; import_seam.install(); import_seam.install()
import sys, openai
assert "openai.types.responses.response" not in sys.modules
assert openai.types.responses.Response.__name__ == "Response"  # a package that nothing imported by its name
import openai.types.chat.chat_completion as module
assert openai.types.chat.chat_completion is module
from openai.types.responses import *
assert ResponseUsage.__module__ == "openai.types.responses.response_usage"
from openai.types import Model, responses
assert "Model" in dir(openai.types) and not hasattr(openai.types, "nothing_of_the_kind")
try:
    from openai.types import nothing_of_the_kind
except ImportError as error:
    print(error.name)
"""
    assert _ran(code).strip() == "openai.types"


@pytest.mark.slow
def test_models_of_libraries_are_built_when_they_are_used_and_those_of_users_at_once() -> None:
    assert _ran(_MODELS).strip() == "PydanticSchemaGenerationError"


def _at_the_top(tree: ast.Module) -> list[ast.stmt]:
    tried = [within for each in tree.body if isinstance(each, ast.Try) for within in each.body]
    return [*tree.body, *tried]


def test_what_is_called_later_is_only_called_and_only_in_functions() -> None:
    for (module, name), importers in CALLED_LATER.items():
        for importer in importers:
            spec = find_spec(importer)
            assert spec is not None and spec.origin is not None
            tree = ast.parse(Path(spec.origin).read_bytes())
            assert any(
                isinstance(each, ast.ImportFrom)
                and module in (each.module, f"{importer}.{each.module}")
                and name in {n.name for n in each.names}
                for each in _at_the_top(tree)
            ), f"{importer} does not import {name}"
            functions = [
                each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            calls = [each for function in functions for body in function.body for each in ast.walk(body)]
            called = {id(each.func) for each in calls if isinstance(each, ast.Call)}
            used = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == name]
            assert (used or importer == "httpx") and all(id(each) in called for each in used), (
                f"{importer} uses {name} otherwise"
            )


@pytest.mark.slow
def test_what_is_called_later_is_itself_to_all_others() -> None:
    code = """
from pallas.processes import import_seam; import_seam.install()
import io, sys
import rich.markdown, fast_agent.core.harness_tools as tools
from rich.console import Console
assert "markdown_it.main" not in sys.modules
assert "fast_agent.commands.handlers.display" not in sys.modules
import httpx, fast_agent.llm.fastagent_llm as llm, fast_agent.agents.tool_agent as tool_agent
assert "jsonschema" not in sys.modules and "download_response" not in vars(sys.modules["httpx._main"])
schema = {"type": "object", "properties": {"a": {"type": "string"}}}
assert tool_agent.validate_json_schema_definition(schema) == schema
llm.validate_json_instance({"a": "b"}, schema)
try:
    llm.validate_json_instance({"a": 1}, schema)
except sys.modules["jsonschema"].ValidationError as error:
    assert "1 is not of type 'string'" in str(error), error
else:
    raise AssertionError
from fast_agent.llm import structured_schema
assert llm.validate_json_schema_definition is not structured_schema.validate_json_schema_definition
assert structured_schema.SchemaError is __import__("jsonschema").SchemaError
Console(file=(shown := io.StringIO())).print(rich.markdown.Markdown("*said*"))
assert shown.getvalue().strip() == "said"
from markdown_it import MarkdownIt
import markdown_it
assert MarkdownIt is markdown_it.MarkdownIt and isinstance(MarkdownIt, type) and markdown_it.__version__
question = tools.execute_harness_command(None, "/nothing", skill_source_overrides={})
from fast_agent.commands.harness import execute_harness_command
assert question.cr_code is execute_harness_command.__code__
question.close()
"""
    assert _ran(code) == ""


@pytest.mark.parametrize(
    "source", [b"import sys\n", b"from .a import b\nx = 1\n", b"from a import b\n", b"from ..a import b\n"]
)
def test_a_package_that_does_more_is_executed(source: bytes) -> None:
    assert exports_of(source) is None


@pytest.mark.slow
def test_methods_of_dataclasses_are_the_same_when_they_are_compiled_later() -> None:
    ours = json.loads(_ran(_DATACLASSES, "postponed"))
    assert len(ours) > 500
    assert ours == json.loads(_ran(_DATACLASSES, "at once"))


def test_a_dataclass_with_late_methods_behaves_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(_MINE)
    (tmp_path / "wrong.py").write_text(_WRONG)
    assert _ran(_LATE, str(tmp_path)).splitlines() == [
        "cannot assign to field 'x'",
        "Cannot overwrite attribute __setattr__ in class Wrong",
    ]


@pytest.mark.slow
def test_models_of_a_protocol_version_are_the_same_when_they_are_made_later() -> None:
    assert json.loads(_ran(_TABLES, "late")) == json.loads(_ran(_TABLES, "at once"))
