"""The file ``faults.yaml``: what it says, what is said of mistakes, and who may serve it."""

from pathlib import Path

import pytest

from pallas.config import AgentConfig, ConfigError, Project
from pallas.config.fault_file import load_faults, served_faults
from pallas.model.discovery import AgentKind
from pallas.model.fault_rules import FaultRule

WHOLE = """
faults:
  - {to: gpt-*, what: 429, at: 1, retry_after: 2}
  - {to: shelf__find, what: slow, seconds: 1.5, rate: 0.25, seed: 7}
  - {to: shelf, what: dropped, at: [2, 3]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mistakes(root: Path, text: str) -> list[str]:
    (root / "faults.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_faults(root)
    return [line.removeprefix("faults.yaml:") for line in str(caught.value).splitlines()]


def test_rules_are_read(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(WHOLE)
    plan = load_faults(tmp_path)
    assert plan is not None
    assert plan.rules == (
        FaultRule("gpt-*", "429", at=(1,), retry_after=2.0),
        FaultRule("shelf__find", "slow", rate=0.25, seed=7, seconds=1.5),
        FaultRule("shelf", "dropped", at=(2, 3)),
    )
    assert str(plan) == (
        "429 to gpt-* at call 1; slow (1.5 s) to shelf__find at 0.25 of the calls; "
        "dropped to shelf at call 2, 3"
    )


def test_a_project_without_the_file_has_no_faults(tmp_path: Path) -> None:
    assert load_faults(tmp_path) is None
    assert served_faults(tmp_path, None, allowed=False) is None
    (tmp_path / "faults.yaml").write_text("faults: []")
    assert load_faults(tmp_path) is None


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no\.yaml: there is no such file; --faults names it"):
        load_faults(tmp_path, tmp_path / "no.yaml")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{what: 429, at: 1}", ".to: is missing; required, for example `to: '*'`, or `to: shop__refund`"),
        ("{to: x, at: 1}", ".what: is missing; required: 401, 429, 500, slow, cut, garbage or dropped"),
        ("{to: x, what: 418, at: 1}", ".what: is a number (418); allowed: 401, 429, 500, slow, cut, garbage"),
        ("{to: x, what: cut}", ": does not name the calls; add at: 1, or rate: 0.1"),
        ("{to: x, what: cut, at: 1, rate: 1}", ".rate: is given beside at; allowed: one of them"),
        ("{to: x, what: cut, at: 0}", ".at: 0 is not the number of a call; allowed: 1 to 1000000"),
        ("{to: x, what: cut, rate: 2}", ".rate: 2 is not a share of calls; allowed: above 0, up to 1"),
        ("{to: x, what: cut, at: 1, seed: 2}", ".seed: has no effect here; it is for rate only"),
        ("{to: x, what: slow, at: 1}", ".seconds: is missing; required, for example `seconds: 30`"),
        ("{to: x, what: 500, at: 1, seconds: 1}", ".seconds: does not belong to 500; it belongs to slow"),
        ("{to: x, what: cut, at: 1, retry_after: 1}", ".retry_after: does not belong to cut; it belongs to"),
        ("{to: x, whot: cut, what: cut, at: 1}", ".whot: unknown key; allowed: to, what, at, rate, seed,"),
    ],
)
def test_a_mistake_is_said_with_its_line(tmp_path: Path, rule: str, said: str) -> None:
    (line,) = mistakes(tmp_path, f"faults:\n  - {{to: y, what: cut, at: 1}}\n  - {rule}\n")
    assert line.startswith(f"3: faults[1]{said}")


@pytest.mark.parametrize("text", ["faults: 3", "rules: []", "faults: {to: x}"])
def test_a_file_of_another_form_is_said_with_an_example(tmp_path: Path, text: str) -> None:
    assert "{to: shop__refund, what: 429, at: 1}" in mistakes(tmp_path, text)[0]


def test_faults_are_served_only_if_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text(WHOLE)
    assert served_faults(tmp_path, None, allowed=True) == load_faults(tmp_path)
    with pytest.raises(ConfigError) as caught:
        served_faults(tmp_path, None, allowed=False)
    assert str(caught.value) == (
        "faults.yaml: faults would be injected into calls of models and tools; "
        "serve them with --allow-faults, or remove this file"
    )


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("bedrock.claude", "bedrock.claude gets no faults: models of Amazon Bedrock are not asked over the"),
        ("bedrock.*", "bedrock.* gets no faults: models of Amazon Bedrock"),
        ("nova", "nova gets no faults: models of Amazon Bedrock"),
        ("agent:nobody", "nobody is not an agent of this project; workers and remote agents: 'coder', 'far'"),
        ("agent:desk", "desk answers in this fleet; faults are for workers and remote agents; name its"),
        ("agent:coder", ""), ("agent:far", ""), ("agent:*", ""), ("*", ""), ("gpt-5", ""), ("shop", ""),
    ],
)  # fmt: skip
def test_a_rule_for_what_gets_no_faults_is_refused(tmp_path: Path, to: str, said: str) -> None:
    kinds: tuple[tuple[str, AgentKind], ...] = (("desk", "llm"), ("coder", "worker"), ("far", "remote"))
    agents = {name: AgentConfig(name, 0, name, "", kind=kind) for name, kind in kinds}
    project = Project(tmp_path, tmp_path / "agents.yaml", "test", agents, provider="bedrock", model="nova")
    (tmp_path / "faults.yaml").write_text(f"faults:\n  - {{to: '{to}', what: cut, at: 1}}\n")
    if not said:
        assert load_faults(tmp_path, None, project) is not None
        return
    with pytest.raises(ConfigError) as caught:
        load_faults(tmp_path, None, project)
    assert str(caught.value).startswith(f"faults.yaml:2: faults[0].to: {said}")
