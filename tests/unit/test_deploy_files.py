"""What stands in deploy/: valid, of one mind with the runtime, and with as few rights as may be."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pallas.cli.app import run
from pallas.config import load_project
from pallas.config.agents_file import DEFAULT_DRAIN_TIMEOUT, DEFAULT_REGISTRY_PORT

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE, EXAMPLE = DEPLOY / "kubernetes" / "base", DEPLOY / "kubernetes" / "example"
USER = 10001


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def manifests() -> list[Path]:
    return sorted(
        path
        for folder in (BASE, EXAMPLE)
        for path in folder.glob("*.yaml")
        if "kind:" in path.read_text() and path.name not in ("kustomization.yaml", "project.yaml")
    )


def base(name: str) -> Any:
    (found,) = documents(BASE / f"{name}.yaml")
    return found


def image() -> list[tuple[str, str]]:
    """The Dockerfile's instructions: each with its arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(words[0], words[1]) for line in lines if len(words := line.split(None, 1)) == 2]


@pytest.mark.parametrize("path", manifests(), ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_each_manifest_is_one_by_the_schema(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("folder", [BASE, EXAMPLE], ids=lambda path: path.name)
def test_a_kustomization_names_files_that_are_there_and_all_of_them(folder: Path) -> None:
    (kustomization,) = documents(folder / "kustomization.yaml")
    named = [folder / each for each in kustomization["resources"]]
    named += [folder / each["path"] for each in kustomization.get("patches", [])]
    named += [folder / file for each in kustomization.get("configMapGenerator", []) for file in each["files"]]
    assert [path for path in named if not path.exists()] == []
    assert {path for path in folder.iterdir() if path.name != "kustomization.yaml"} <= set(named)


def test_selectors_and_labels_agree() -> None:
    # One that matches nothing, or every pod there is, is valid all the same.
    label = {"app.kubernetes.io/name": "pallas"}
    deployment = base("deployment")["spec"]
    assert label.items() <= deployment["template"]["metadata"]["labels"].items()
    for selector in (
        deployment["selector"]["matchLabels"],
        base("service")["spec"]["selector"],
        base("poddisruptionbudget")["spec"]["selector"]["matchLabels"],
        base("networkpolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == label


def test_a_rolling_update_leaves_time_for_the_runs_in_flight() -> None:
    spec = base("deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    probe = container["readinessProbe"]
    # Out of the service before it is asked to stop, and killed only after the drain had its time.
    assert wait > probe["periodSeconds"] * probe["failureThreshold"]
    assert pod["terminationGracePeriodSeconds"] >= wait + DEFAULT_DRAIN_TIMEOUT + 10
    assert container["startupProbe"]["httpGet"]["path"] == probe["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[name]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_the_pod_may_do_little() -> None:
    pod = base("deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in container["resources"]["limits"]
    assert container["ports"][0]["containerPort"] == DEFAULT_REGISTRY_PORT


def test_the_example_is_a_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(EXAMPLE)]) == 0, capsys.readouterr().err
    project = load_project(EXAMPLE)
    (ingress,) = documents(EXAMPLE / "ingress.yaml")
    assert project.public_url == f"https://{ingress['spec']['rules'][0]['host']}"
    assert project.port == DEFAULT_REGISTRY_PORT


def test_the_image_runs_as_nobody_in_particular_and_is_asked_whether_it_is_ready() -> None:
    steps = image()
    assert ("USER", f"{USER}:{USER}") in steps
    # Whatever needs rights stands before that.
    after = steps[steps.index(("USER", f"{USER}:{USER}")) :]
    assert not [argument for name, argument in after if name in ("RUN", "COPY", "ADD")]
    (check,) = [argument for name, argument in steps if name == "HEALTHCHECK"]
    assert check.endswith('CMD ["pallas", "ready"]')
    assert ("STOPSIGNAL", "SIGTERM") in steps
    assert ("ENTRYPOINT", '["pallas"]') in steps
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    copied = {
        source
        for name, argument in steps
        if name == "COPY" and "--from" not in argument
        for source in argument.split()[:-1]
    }
    # Nothing but what is named gets into the image: no secrets, no .env, no tests.
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((DEPLOY.parent / source).exists() for source in copied)


def test_compose_holds_the_image_to_the_same() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    service = compose["services"]["pallas"]
    assert service["user"] == f"{USER}:{USER}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert int(service["stop_grace_period"].removesuffix("s")) >= DEFAULT_DRAIN_TIMEOUT + 10
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert service["environment"] == {"CREDENTIALS_DIRECTORY": "/run/secrets"}
    assert set(service["secrets"]) == set(compose["secrets"])


def test_the_image_is_reached_on_every_port_of_the_project_that_it_is_shown_with() -> None:
    project = load_project(DEPLOY.parent / "sample_project")
    ports = {project.registry_port, *(agent.port for agent in project.agents.values())}
    (compose,) = documents(DEPLOY / "compose.yaml")
    for mapping in (*compose["services"]["pallas"]["ports"], _run_in_the_dockerfile()):
        first, last = mapping.rpartition(":")[2].split("-")
        assert mapping.removeprefix("127.0.0.1:") == f"{first}-{last}:{first}-{last}"
        assert ports == set(range(int(first), int(last) + 1))


def _run_in_the_dockerfile() -> str:
    found = re.search(r"docker run .* -p (\S+)", (DEPLOY / "Dockerfile").read_text())
    assert found is not None
    return found[1]
