"""The catalog over a real database: what is made, changed, refused and deleted, and what is told of it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.fernet import Fernet
from sqlalchemy import func, select
from support.catalogs import Stand, a_catalog
from support.waiting import until

from pallas.catalog import Catalog
from pallas.catalog.secret_seal import Seal
from pallas.ledger.tables import messages
from pallas.model import Fault, FaultType, Message, Params, ResourceKind, RunRecord
from pallas.model.redaction import redact_text

KEY = "sk-test-4f9a8b7c6d5e"
FIELDS = {
    "description", "systemPrompt", "llm", "project", "proxyModelName", "defaultParams", "extras",
    "maxIterations", "loopRepeatThreshold",
}  # fmt: skip


@pytest_asyncio.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with a_catalog(tmp_path / "project") as found:
        yield found


async def with_llm(catalog: Catalog) -> None:
    """The secret ``keys`` and the LLM ``qwen`` that uses it."""
    await catalog.create("secret", "keys", {"data": {"API_KEY": KEY}}, "ann")
    spec = {
        "type": "openai",
        "model": "qwen3-thinking",
        "url": "http://127.0.0.1:9/v1",
        "apiKeyRef": "keys/API_KEY",
        "probe": False,
    }
    await catalog.create("llm", "qwen", spec, "ann")


async def refused(work: Any, reason: str) -> Fault:
    """The Fault that something is refused with."""
    with pytest.raises(Fault) as caught:
        await work
    assert caught.value.data.get("reason") == reason, caught.value
    return caught.value


async def test_an_agent_is_made_found_changed_and_deleted_by_name_and_by_id(stand: Stand) -> None:
    catalog = stand.catalog
    await with_llm(catalog)
    await catalog.create("project", "team", {"servers": ["echo"]}, "ann")
    spec = {
        "description": "Reviews.",
        "systemPrompt": "You review.",
        "llm": "qwen",
        "project": {"name": "team"},
        "proxyModelName": "cheap",
        "defaultParams": {"temperature": 0.2, "top_p": 0.9},
        "maxIterations": 5,
        "loopRepeatThreshold": 0,
        "extras": {"note": 1},
    }
    made = await catalog.create("agent", "reviewer", spec, "ann")
    # AG-1: every field of the model is told, by name and by id
    assert made.spec.keys() == FIELDS and made.spec == {**spec, "project": "team"}
    assert (made.owner, made.version) == ("ann", 1) and made.created_at > 0
    assert made.status["llm"]["name"] == "qwen" and made.status["project"]["name"] == "team"
    assert await catalog.get("agent", "reviewer") == await catalog.get("agent", made.id) == made
    assert [each.name for each in (await catalog.list("agent")).items] == ["helper", "reviewer"]

    changed = await catalog.update("agent", made.id, {"system_prompt": "Review well.", "extras": None})
    assert changed.version == 2 and changed.updated_at >= made.updated_at
    assert changed.spec == {**made.spec, "systemPrompt": "Review well.", "extras": {}}
    same = await catalog.update("agent", "reviewer", {"description": "Reviews."})
    assert same == changed

    fault = await refused(catalog.create("agent", "reviewer", {}, "bob"), "conflict")
    assert "reviewer exists already" in fault.message
    await catalog.delete("agent", "reviewer")
    fault = await refused(catalog.get("agent", "reviewr"), "not_found")
    await refused(catalog.get("agent", made.id), "not_found")
    assert stand.fleet.left == ["reviewer"]


async def test_an_llm_in_use_stays_until_nobody_uses_it(stand: Stand) -> None:
    catalog = stand.catalog
    await with_llm(catalog)
    for name in ("one", "two"):
        await catalog.create("agent", name, {"llm": "qwen"}, "ann")
    # AG-2
    fault = await refused(catalog.delete("llm", "qwen"), "in_use")
    assert fault.data["users"] == ["one", "two"] and "one, two" in fault.message
    fault = await refused(catalog.delete("secret", "keys"), "in_use")
    assert fault.data["users"] == ["qwen"]
    await catalog.update("agent", "one", {"llm": None})
    await catalog.delete("agent", "two")
    await catalog.delete("llm", "qwen")
    await catalog.delete("secret", "keys")
    assert (await catalog.list("llm")).items == (await catalog.list("secret")).items == ()


async def test_what_goes_takes_its_own_with_it_and_nothing_else(stand: Stand) -> None:
    catalog, threads = stand.catalog, stand.ledger.threads
    await with_llm(catalog)
    await catalog.create("project", "team", {}, "ann")
    made = await catalog.create("agent", "reviewer", {"llm": "qwen", "project": "team"}, "ann")
    thread = await threads.create("reviewer", "ann", origin="rest")
    run = RunRecord("run1", "reviewer", "ann", thread=thread.id)
    await threads.begin(thread.id, run, Message("user", "hello"))
    # AG-3
    await catalog.delete("project", "team")
    found = await catalog.get("agent", "reviewer")
    assert found.id == made.id and found.spec["project"] is None and found.status["project"] is None
    await catalog.delete("agent", "reviewer")
    assert await threads.get(thread.id) is None
    left = select(func.count()).select_from(messages)
    assert await stand.ledger.database.read(lambda connection: connection.execute(left).scalar()) == 0
    assert (await catalog.get("llm", "qwen")).spec["apiKeyRef"] == {"name": "keys", "key": "API_KEY"}
    assert (await catalog.get("secret", "keys")).spec == {"keys": ["API_KEY"]}


async def test_a_document_applied_as_it_was_given_changes_nothing(stand: Stand) -> None:
    catalog = stand.catalog
    await with_llm(catalog)
    servers = [
        "echo",
        {"name": "own", "url": "https://x.example/mcp", "headers": {"X-Key": "${secret:keys/API_KEY}"}},
    ]
    prompts = ["Be brief.", {"text": "Be kind.", "name": "tone", "priority": 3}]
    await catalog.create("project", "team", {"servers": servers, "prompts": prompts}, "ann")
    document = {
        "apiVersion": "mcpctl.io/v1",
        "kind": "Agent",
        "metadata": {"name": "deployer"},
        "spec": {
            "description": "I help",
            "llm": "qwen",
            "project": "team",
            "systemPrompt": "You deploy.\nAlways check.\n",
            "defaultParams": {"temperature": 0.2, "max_tokens": 4096, "stop": ["</deploy>"], "own": 1},
        },
    }
    made, outcome = await catalog.apply(document, "ann")
    assert outcome == "created" and made.spec["defaultParams"]["extra"] == {"own": 1}
    # AG-22
    kinds: tuple[tuple[ResourceKind, str], ...] = (
        ("agent", "deployer"),
        ("agent", "helper"),
        ("llm", "qwen"),
        ("secret", "keys"),
        ("project", "team"),
        ("project", "test"),
    )
    for kind, name in kinds:
        before = await catalog.get(kind, name)
        written = json.loads(json.dumps(catalog.document(before)))
        assert written["apiVersion"] == "pallas/v1" and "version" not in written["metadata"]
        after, outcome = await catalog.apply(written, "bob")
        assert (outcome, after) == ("unchanged", before)
    for form in ({"name": "qwen"}, {"id": made.status["llm"]["id"]}, "qwen"):
        document["spec"]["llm"] = form  # type: ignore[index]
        document["spec"]["project"] = {"name": "team"}  # type: ignore[index]
        after, outcome = await catalog.apply(document, "ann")
        assert outcome == "unchanged" and after.version == 1
    document["spec"]["description"] = "I do"  # type: ignore[index]
    after, outcome = await catalog.apply(document, "ann")
    assert outcome == "configured" and after.version == 2


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ([], "document"),
        ({"kind": "agent"}, "apiVersion"),
        ({"apiVersion": "v1", "kind": "agent"}, "apiVersion"),
        ({"apiVersion": "pallas/v1", "kind": "pod"}, "kind"),
        ({"apiVersion": "pallas/v1", "kind": "agent", "metadata": {"labels": {}}}, "metadata"),
        ({"apiVersion": "pallas/v1", "kind": "agent", "metadata": {}}, "name"),
        ({"apiVersion": "pallas/v1", "kind": "agent", "metadata": {"name": "x"}, "spec": {"lmm": ""}}, "lmm"),
        ({"apiVersion": "pallas/v1", "kind": "agent", "status": {}}, "status"),
    ],
)
async def test_a_document_that_is_none_is_told_by_its_key(stand: Stand, document: Any, key: str) -> None:
    with pytest.raises(Fault) as caught:
        await stand.catalog.apply(document, "ann")
    assert caught.value.type is FaultType.PROTOCOL and caught.value.data["key"] == key


async def test_the_value_of_a_secret_is_used_and_never_told(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = stand.catalog
    caplog.set_level(logging.DEBUG)
    await with_llm(catalog)
    await catalog.create("agent", "reviewer", {"llm": "qwen"}, "ann")
    # AG-29: the key is never shown, by get or by list or by the document or in the database
    told: list[Any] = [await catalog.get("secret", "keys"), await catalog.get("llm", "qwen")]
    told += (await catalog.list("secret")).items + (await catalog.list("llm")).items
    told += [catalog.document(each) for each in told]
    rows = await stand.ledger.resources.everything()
    wanted = stand.wanted("reviewer")
    for each in (told, rows.secrets[0].values, rows, wanted, wanted.definition, catalog, caplog.text):
        assert KEY not in repr(each)
    assert wanted.definition is not None and wanted.definition.llm is not None
    assert wanted.definition.llm.api_key == KEY
    assert KEY not in redact_text(f"it was {KEY} all along")  # while the fleet lives
    catalog.close()
    other = await catalog.get("secret", "keys")
    assert other.spec == {"keys": ["API_KEY"]}


async def test_a_secrets_keys_are_changed_one_by_one(stand: Stand) -> None:
    catalog = stand.catalog
    await with_llm(catalog)
    changed = await catalog.update("secret", "keys", {"data": {"OTHER": "second-value"}})
    assert changed.spec == {"keys": ["API_KEY", "OTHER"]} and changed.version == 2
    same = await catalog.update("secret", "keys", {"data": {"API_KEY": KEY}})
    assert same.version == 2
    again = await catalog.update("secret", "keys", {"data": {"API_KEY": "sk-test-new-value"}})
    assert again.version == 3
    fault = await refused(catalog.update("secret", "keys", {"data": {"API_KEY": None}}), "in_use")
    assert fault.data["users"] == ["qwen"]
    less = await catalog.update("secret", "keys", {"data": {"OTHER": None}})
    assert less.spec == {"keys": ["API_KEY"]}
    with pytest.raises(Fault, match="data: is missing"):
        await catalog.create("secret", "empty", {}, "ann")


async def test_what_it_refers_to_has_to_be_there(stand: Stand) -> None:
    catalog = stand.catalog
    await with_llm(catalog)
    fault = await refused(catalog.create("agent", "a", {"llm": "qwem"}, "ann"), "unprocessable")
    assert fault.data["key"] == "llm" and "did you mean qwen?" in fault.message
    llm = {"type": "openai", "model": "m", "apiKeyRef": "keys/KEY"}
    fault = await refused(catalog.create("llm", "b", llm, "ann"), "unprocessable")
    assert fault.data["key"] == "apiKeyRef.key" and "it has API_KEY" in fault.message
    fault = await refused(catalog.create("project", "c", {"servers": ["eco"]}, "ann"), "unprocessable")
    assert fault.data["key"] == "servers.0" and "did you mean echo?" in fault.message
    own: dict[str, Any] = {"name": "echo", "url": "http://x.example/mcp"}
    await refused(catalog.create("project", "c", {"servers": [own]}, "ann"), "conflict")
    own = {"name": "x", "url": "http://x.example/mcp", "headers": {"X-Key": "${secret:keys/NO}"}}
    fault = await refused(catalog.create("project", "c", {"servers": [own]}, "ann"), "unprocessable")
    assert fault.data["key"] == "servers.0.headers.X-Key"
    with pytest.raises(Fault, match="url: is missing; type generic"):
        await catalog.create("llm", "d", {"type": "generic", "model": "m"}, "ann")
    with pytest.raises(Fault, match="type: is missing"):
        await catalog.create("llm", "d", {"model": "m"}, "ann")


async def test_names_that_would_be_published_as_one_are_refused(stand: Stand) -> None:
    catalog = stand.catalog
    await catalog.create("agent", "my-agent", {}, "ann")
    # UN-6: no clash of names goes unreported
    fault = await refused(catalog.create("agent", "my_agent", {}, "ann"), "conflict")
    assert "my-agent is published as my-agent already" in fault.message
    fault = await refused(catalog.create("agent", "helper", {}, "ann"), "conflict")
    assert "agents.yaml:" in fault.message
    for name in ("agent-x", "system", "system.x", "Big", "", "x" * 101, 3):
        with pytest.raises(Fault) as caught:
            await catalog.create("agent", name, {}, "ann")  # type: ignore[arg-type]
        assert caught.value.type is FaultType.PROTOCOL and caught.value.data["key"] == "name"


async def test_what_files_declare_is_listed_and_not_changed(stand: Stand) -> None:
    catalog = stand.catalog
    helper = await catalog.get("agent", "helper")
    assert helper.status["source"].startswith("agents.yaml:") and helper.spec["project"] == "test"
    for spec in ({"systemPrompt": "other"}, {"description": "other"}, {"project": None}):
        fault = await refused(catalog.update("agent", "helper", spec), "conflict")
        assert "agents.yaml:" in fault.message
    await refused(catalog.delete("agent", "helper"), "conflict")
    own = await catalog.get("project", "test")
    assert own.spec["servers"] == ["echo"] and own.status == {"source": "agents.yaml", "agents": ["helper"]}
    await refused(catalog.delete("project", "test"), "conflict")
    await refused(catalog.update("project", own.id, {"prompts": ["hi"]}), "conflict")
    await refused(catalog.create("project", "test", {}, "ann"), "conflict")
    assert [each.name for each in (await catalog.list("agent", project="test")).items] == ["helper"]
    await catalog.create("agent", "mine", {"project": "test"}, "ann")
    assert [each.name for each in (await catalog.list("agent", project="test")).items] == ["helper", "mine"]
    definition = stand.wanted("mine").definition
    assert definition is not None and definition.servers == ("echo",)


async def test_defaults_of_a_files_agent_are_set_here_unless_the_file_has_some(stand: Stand) -> None:
    catalog, fleet = stand.catalog, stand.fleet
    changed = await catalog.update("agent", "helper", {"defaultParams": {"temperature": 0.5, "min_p": 1}})
    assert changed.version == 2
    assert changed.spec["defaultParams"] == {"temperature": 0.5, "extra": {"min_p": 1}}
    assert catalog.desired(fleet.files).defaults["helper"].get("temperature") == 0.5
    cleared = await catalog.update("agent", "helper", {"defaultParams": None})
    assert cleared.spec["defaultParams"] is None and not catalog.desired(fleet.files).defaults
    own = replace(fleet.files.agents["helper"], params=Params.read({"seed": 1}, strict=True))
    fleet.files = replace(fleet.files, agents={"helper": own})
    fault = await refused(catalog.update("agent", "helper", {"defaultParams": {"seed": 2}}), "conflict")
    assert "params of agent helper are declared in agents.yaml:" in fault.message
    assert (await catalog.get("agent", "helper")).spec["defaultParams"] == {"seed": 1}


async def test_a_files_agent_that_goes_leaves_its_name_and_its_threads(stand: Stand) -> None:
    catalog, fleet = stand.catalog, stand.fleet
    thread = await stand.ledger.threads.create("helper", "ann")
    await catalog.update("agent", "helper", {"defaultParams": {"seed": 1}})
    fleet.files = replace(fleet.files, agents={})
    await catalog.declare()
    assert (await catalog.list("agent")).items == ()
    made = await catalog.create("agent", "helper", {"systemPrompt": "Anew."}, "ann")
    assert made.spec["defaultParams"] is None and made.version == 1
    assert (await stand.ledger.threads.find("helper", thread.id)) is not None


async def test_an_agent_that_a_file_declares_later_waits_for_it_to_let_go(stand: Stand) -> None:
    catalog, fleet = stand.catalog, stand.fleet
    made = await catalog.create("agent", "mine", {"systemPrompt": "Mine."}, "ann")
    files = fleet.files
    later = replace(files.agents["helper"], name="mine")
    fleet.files = replace(files, agents={**files.agents, "mine": later})
    await catalog.declare()
    assert (await catalog.get("agent", "mine")).status["shadows"] == "api"
    found = await catalog.get("agent", made.id)
    assert found.status["shadowed"].startswith("agents.yaml:") and found.spec["systemPrompt"] == "Mine."
    fault = await refused(catalog.update("agent", "mine", {"systemPrompt": "x"}), "conflict")
    await refused(catalog.delete("agent", "mine"), "conflict")
    fleet.files = files
    await catalog.declare()
    assert "shadowed" not in (await catalog.get("agent", "mine")).status
    assert "agents.yaml" in fault.message


async def test_prompts_of_the_project_follow_the_agents_own_by_priority(stand: Stand) -> None:
    catalog = stand.catalog
    prompts = [{"text": "last", "priority": -1}, "middle", {"text": "first", "priority": 5}]
    await catalog.create("project", "team", {"prompts": prompts}, "ann")
    await catalog.create("agent", "a", {"systemPrompt": "Own.", "project": "team"}, "ann")
    definition = stand.wanted("a").definition
    assert definition is not None and definition.instruction == "Own.\n\nfirst\n\nmiddle\n\nlast"
    assert definition.servers == ()


async def test_parameters_of_the_llm_lie_below_those_of_the_agent(stand: Stand) -> None:
    catalog = stand.catalog
    extra = {"vision": True, "contextWindow": 9000, "note": "kept"}
    llm = {"type": "openai", "model": "m", "defaultParams": {"temperature": 1, "seed": 3}, "extra": extra}
    await catalog.create("llm", "m", llm, "ann")
    await catalog.create("agent", "a", {"llm": "m", "defaultParams": {"temperature": 0, "seed": None}}, "ann")
    config = stand.wanted("a")
    assert config.params.values == {"temperature": 0, "seed": None}
    assert config.model_capabilities is not None and config.model_capabilities.vision
    assert config.model_capabilities.context_window == 9000


async def test_lists_come_in_pieces_without_gaps(stand: Stand) -> None:
    catalog = stand.catalog
    names = [f"p{number:02}" for number in range(7)]
    for name in reversed(names):
        await catalog.create("project", name, {}, "ann")
    found, cursor = [], ""
    while True:
        page = await catalog.list("project", limit=3, cursor=cursor)
        found += [each.name for each in page.items]
        if not (cursor := page.next):
            break
    assert found == [*names, "test"]
    wrongs: tuple[dict[str, Any], ...] = ({"limit": 0}, {"cursor": "nonsense"})
    for wrong in wrongs:
        with pytest.raises(Fault) as caught:
            await catalog.list("project", **wrong)
        assert caught.value.type is FaultType.PROTOCOL


async def test_another_key_opens_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    async with a_catalog(tmp_path / "project", url, keys=(old,)) as stand:
        await with_llm(stand.catalog)
        await stand.catalog.create("agent", "a", {"llm": "qwen"}, "ann")
        wrong = Catalog(stand.ledger.resources, Seal((new,), "PALLAS_SECRET_KEY"), stand.fleet)
        (problem,) = await wrong.start()
        assert "secret keys cannot be opened" in problem and "set PALLAS_SECRET_KEY" in problem
        assert "PALLAS_SECRET_KEY" in (await wrong.get("secret", "keys")).status["problem"]
        definition = wrong.desired(stand.fleet.files).agents["a"].definition
        assert definition is not None and "needs secret keys, which cannot be opened" in definition.problem
        await wrong.update("secret", "keys", {"data": {"API_KEY": KEY}})  # written anew, it has recovered
        assert "problem" not in (await wrong.get("secret", "keys")).status
        definition = wrong.desired(stand.fleet.files).agents["a"].definition
        assert definition is not None and definition.problem == ""


async def test_a_new_key_in_front_of_the_old_one_takes_over_what_is_sealed(tmp_path: Path) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    async with a_catalog(tmp_path / "project", url, keys=(old,)) as stand:
        await with_llm(stand.catalog)
    async with a_catalog(tmp_path / "project", url, keys=(new, old)) as stand:
        assert (await stand.catalog.get("secret", "keys")).version == 1
    async with a_catalog(tmp_path / "project", url, keys=(new,)) as stand:
        assert (await stand.catalog.get("secret", "keys")).status.get("problem") is None


async def test_a_value_that_no_header_takes_is_told_where_it_is_used(stand: Stand) -> None:
    catalog = stand.catalog
    await with_llm(catalog)
    await catalog.create("agent", "a", {"llm": "qwen"}, "ann")
    await catalog.update("secret", "keys", {"data": {"API_KEY": "sk-with-its-line-end\n"}})
    definition = stand.wanted("a").definition
    assert definition is not None and definition.llm is not None
    assert definition.llm.api_key == "sk-with-its-line-end"
    await catalog.update("secret", "keys", {"data": {"API_KEY": "two\nlines"}})
    definition = stand.wanted("a").definition
    assert (
        definition is not None
        and "keys/API_KEY, which holds characters that no header can carry" in definition.problem
    )


async def test_whoever_hangs_up_has_changed_it_all_the_same(stand: Stand) -> None:
    catalog = stand.catalog
    task = asyncio.create_task(catalog.create("agent", "mine", {}, "ann"))
    await asyncio.sleep(0)  # it has begun
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: "mine" in catalog.desired(stand.fleet.files).agents)
