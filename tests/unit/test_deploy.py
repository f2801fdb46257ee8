"""The files in deploy/ are valid, agree with the runtime and with each other, and ask for few rights."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from deploy.rehearse import obstacle
from pallas.cli.app import run
from pallas.config import Project, load_project
from pallas.config.agents_file import DEFAULT_DRAIN_TIMEOUT, DEFAULT_REGISTRY_PORT
from pallas.ledger import database_url_of
from pallas.model import FleetSnapshot, FleetState
from pallas.surfaces.metrics import Metrics
from pallas.surfaces.status_pages import status_pages

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = DEPLOY / "project"
KUBERNETES = DEPLOY / "kubernetes"
BASE, AUTOSCALING, EXAMPLE = (KUBERNETES / name for name in ("base", "autoscaling", "example"))
KUSTOMIZED = (BASE, AUTOSCALING, EXAMPLE, PROJECT)
USER = 10001
SPARE_S = 10
"""Seconds that a grace period has beyond the drain."""

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed (make system-packages)")


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def kustomization(folder: Path) -> dict[str, Any]:
    (found,) = documents(folder / "kustomization.yaml")
    return found


def patches(folder: Path) -> list[Path]:
    return [folder / each["path"] for each in kustomization(folder).get("patches", [])]


def manifests() -> list[Path]:
    return sorted(
        path
        for folder in (BASE, AUTOSCALING, EXAMPLE)
        for path in folder.glob("*.yaml")
        if path.name != "kustomization.yaml" and path not in patches(folder)
    )


def base(name: str) -> Any:
    (found,) = documents(BASE / f"{name}.yaml")
    return found


def pod() -> Any:
    return base("deployment")["spec"]["template"]["spec"]


def image() -> list[tuple[str, str]]:
    """The Dockerfile's instructions: each with its arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(words[0], words[1]) for line in lines if len(words := line.split(None, 1)) == 2]


def compose() -> dict[str, Any]:
    (found,) = documents(DEPLOY / "compose.yaml")
    return found


def replicas_of_compose() -> dict[str, Any]:
    return {name: each for name, each in compose()["services"].items() if each["image"] == "pallas"}


def balancer() -> str:
    """The configuration of HAProxy."""
    return (DEPLOY / "haproxy.cfg").read_text()


def seconds(text: str) -> float:
    """A duration of compose or HAProxy in seconds."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(PROJECT)


@pytest.mark.parametrize("path", manifests(), ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_each_manifest_is_one_by_the_schema(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda path: path.name)
def test_a_kustomization_names_files_that_are_there_and_all_of_them(folder: Path) -> None:
    given = kustomization(folder)
    named = [folder / each for each in (*given.get("resources", []), *given.get("components", []))]
    named += patches(folder)
    named += [folder / file for each in given.get("configMapGenerator", []) for file in each["files"]]
    assert [path for path in named if not path.exists()] == []
    others = {"kustomization.yaml", ".gitignore", "secrets.env", "secrets.example.env"}
    assert {path for path in folder.iterdir() if path.name not in others} <= set(named)


def test_a_patch_changes_what_is_in_the_base() -> None:
    for path in (*patches(AUTOSCALING), *patches(EXAMPLE)):
        (patch,) = documents(path)
        for key in ("apiVersion", "kind"):
            assert patch[key] == base("deployment")[key]
        assert patch["metadata"]["name"] == base("deployment")["metadata"]["name"]
    (changes,) = documents(EXAMPLE / "project.yaml")
    (container,) = changes["spec"]["template"]["spec"]["containers"]
    assert container["name"] == pod()["containers"][0]["name"]


def test_selectors_and_labels_agree() -> None:
    # One that matches nothing, or every pod there is, is valid all the same.
    label = {"app.kubernetes.io/name": "pallas"}
    deployment = base("deployment")["spec"]
    assert label.items() <= deployment["template"]["metadata"]["labels"].items()
    policies = [
        each
        for path in manifests()
        for each in documents(path)
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] != "pallas-postgres"
    ]
    assert len(policies) == 3
    for selector in (
        deployment["selector"]["matchLabels"],
        pod()["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        base("service")["spec"]["selector"],
        base("poddisruptionbudget")["spec"]["selector"]["matchLabels"],
        *(policy["spec"]["podSelector"]["matchLabels"] for policy in policies),
    ):
        assert selector == label
    ports = {rule["ports"][0]["port"] for policy in policies for rule in policy["spec"]["ingress"]}
    assert ports == {DEFAULT_REGISTRY_PORT}


def test_a_rolling_update_leaves_time_for_the_runs_in_flight(project: Project) -> None:
    spec = base("deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (container,) = pod()["containers"]
    wait = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    probe = container["readinessProbe"]
    # Out of the service before it is asked to stop, and killed only after the drain had its time.
    assert wait > probe["periodSeconds"] * probe["failureThreshold"]
    for drain_timeout in (DEFAULT_DRAIN_TIMEOUT, project.drain_timeout):
        assert pod()["terminationGracePeriodSeconds"] >= wait + drain_timeout + SPARE_S
    assert project.drain == "hand_over"


async def test_what_probes_and_the_scrape_ask_for_is_served(project: Project) -> None:
    pages = status_pages(lambda: None, root=Path(), providers=lambda: (), metrics=None)  # type: ignore[arg-type,return-value]
    (container,) = pod()["containers"]
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert asked["startupProbe"]["path"] == asked["readinessProbe"]["path"] == "/readyz"
    assert asked["livenessProbe"]["path"] == "/healthz"
    scraped = base("deployment")["spec"]["template"]["metadata"]["annotations"]
    paths = {each["path"] for each in asked.values()} | {scraped["prometheus.io/path"]}
    assert paths | set(re.findall(r"(?:uri|path) (/\S+)", balancer())) == set(pages)
    for each in asked.values():
        assert each["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
        assert each["port"] == container["ports"][0]["name"]
    assert "hdr Host localhost" in balancer()
    balanced = re.findall(r"^ +(?:bind |server \S+ [\w.-]+):(\d+)$", balancer(), re.MULTILINE)
    ports = {
        project.port,
        container["ports"][0]["containerPort"],
        int(scraped["prometheus.io/port"]),
        *map(int, balanced),
    }
    assert ports == {DEFAULT_REGISTRY_PORT}
    assert base("service")["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_the_pod_may_do_little() -> None:
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] == USER
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in container["resources"]["limits"]
    # What it writes goes to a volume that ends with it.
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    (tmp,) = [each for each in pod()["volumes"] if each["name"] == mounted["/tmp"]]
    assert tmp["emptyDir"]["sizeLimit"]


def test_replicas_grow_with_a_metric_that_the_fleet_has() -> None:
    (autoscaler,) = documents(AUTOSCALING / "horizontalpodautoscaler.yaml")
    target = autoscaler["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", base("deployment")["metadata"]["name"])
    assert autoscaler["spec"]["minReplicas"] == base("deployment")["spec"]["replicas"] == 3
    (metric,) = autoscaler["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    fleet = FleetSnapshot("desk", FleetState.RUNNING, 0, "", ())
    assert f"# TYPE {name} gauge" in Metrics(lambda: fleet).render().decode()
    assert f"seriesQuery: '{name}{{" in (ROOT / "docs" / "deployment.md").read_text()
    # The number of replicas is the autoscaler's alone.
    (patch,) = patches(AUTOSCALING)
    assert documents(patch)[0]["spec"] == {"replicas": None}


def test_each_secret_is_a_file_and_no_value_of_one_is_in_the_repository() -> None:
    given = kustomization(EXAMPLE)["secretGenerator"]
    (volume,) = [each for each in pod()["volumes"] if "secret" in each]
    assert [each["name"] for each in given] == [volume["secret"]["secretName"]]
    lines = (EXAMPLE / "secrets.example.env").read_text().splitlines()
    entries = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert set(entries.values()) == {""}
    assert {"PGPASSWORD", "PALLAS_SECRET_KEY", "OPENAI_API_KEY"} <= set(entries)
    assert given[0]["envs"] == ["secrets.env"]
    assert "secrets.env" in (EXAMPLE / ".gitignore").read_text().splitlines()
    assert not [path for path in manifests() for each in documents(path) if each["kind"] == "Secret"]
    (container,) = pod()["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
    assert variables["CREDENTIALS_DIRECTORY"] == mount["mountPath"]
    assert not entries.keys() & variables.keys()


def test_the_database_of_the_example_is_the_one_that_replicas_ask(project: Project) -> None:
    service, stateful, policy = documents(EXAMPLE / "postgres.yaml")
    (container,) = pod()["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    url = database_url_of(project, variables)
    (database,) = stateful["spec"]["template"]["spec"]["containers"]
    settings = {each["name"]: each["value"] for each in database["env"]}
    name, user = settings["POSTGRES_DB"], settings["POSTGRES_USER"]
    assert url == f"postgresql://{user}@{service['metadata']['name']}:5432/{name}"
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    label = stateful["spec"]["template"]["metadata"]["labels"]
    assert label == service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"]
    (source,) = policy["spec"]["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"] == base("deployment")["spec"]["selector"]["matchLabels"]
    rights = stateful["spec"]["template"]["spec"]["securityContext"]
    assert rights["runAsNonRoot"] is True


def test_the_sample_is_a_project(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (changes,) = documents(EXAMPLE / "project.yaml")
    (container,) = changes["spec"]["template"]["spec"]["containers"]
    for each in container["env"]:
        monkeypatch.setenv(each["name"], each["value"])
    assert run(["check", "--offline", str(PROJECT)]) == 0, capsys.readouterr().err
    ingress = documents(EXAMPLE / "ingress.yaml")[0]
    assert load_project(PROJECT).public_url == f"https://{ingress['spec']['rules'][0]['host']}"
    assert base("service")["metadata"]["name"] in load_project(PROJECT).allowed_hosts


def test_the_image_has_a_user_without_rights_and_a_health_check() -> None:
    steps = image()
    assert ("USER", f"{USER}:{USER}") in steps
    # Whatever needs rights stands before that.
    after = steps[steps.index(("USER", f"{USER}:{USER}")) :]
    assert not [argument for name, argument in after if name in ("RUN", "COPY", "ADD")]
    (check,) = [argument for name, argument in steps if name == "HEALTHCHECK"]
    assert check.endswith('CMD ["pallas", "ready"]')
    assert ("STOPSIGNAL", "SIGTERM") in steps
    assert ("ENTRYPOINT", '["pallas"]') in steps
    # A container has no place for compiled code: it is in the image.
    (install,) = [argument for name, argument in steps if name == "RUN" and "pip install" in argument]
    assert "--compile" in install
    assert "[postgresql]" in install
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = {
        source
        for name, argument in steps
        if name == "COPY" and "--from" not in argument
        for source in argument.split()[:-1]
    }
    # Nothing but what is named gets into the image: no secrets, no .env, no tests.
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_rehearse_says_why_it_cannot_run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    assert obstacle() == "mounting file systems needs root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert obstacle() == "unshare is not installed (util-linux)"
    for program in ("unshare", "setpriv"):
        (tmp_path / program).write_text("#!/bin/sh\necho Operation not permitted >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    assert obstacle() == "no mount namespace (Operation not permitted)"
    (tmp_path / "unshare").write_text("#!/bin/sh\n")
    assert obstacle() == ""


def test_the_image_is_reached_on_every_port_of_the_project_that_it_is_shown_with() -> None:
    shown = load_project(ROOT / "sample_project")
    ports = {shown.registry_port, *(agent.port for agent in shown.agents.values())}
    found = re.search(r"docker run .* -p (\S+)", (DEPLOY / "Dockerfile").read_text())
    assert found is not None
    first, last = found[1].rpartition(":")[2].split("-")
    assert found[1] == f"{first}-{last}:{first}-{last}"
    assert ports == set(range(int(first), int(last) + 1))


def test_compose_runs_three_equal_replicas_with_the_rights_of_the_image(project: Project) -> None:
    replicas = replicas_of_compose()
    assert len(replicas) == 3
    service, *others = replicas.values()
    assert all(each == service for each in others)
    assert service["user"] == f"{USER}:{USER}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    # The image has a health check, which `up --wait` waits for.
    assert "healthcheck" not in service
    (volume,) = service["volumes"]
    assert volume == "${PALLAS_PROJECT:-./project}:/project:ro"
    for drain_timeout in (DEFAULT_DRAIN_TIMEOUT, project.drain_timeout):
        assert seconds(service["stop_grace_period"]) >= drain_timeout + SPARE_S
    # Replicas are reached through the balancer alone.
    assert "ports" not in service


def test_names_in_compose_lead_to_what_it_has() -> None:
    whole = compose()
    services = whole["services"]
    assert set(services) == {*replicas_of_compose(), "haproxy", "postgres"}
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(whole["secrets"])
        assert set(service["networks"]) <= set(whole["networks"])
        assert service["image"] == "pallas" or re.fullmatch(r"[a-z]+:[\d.]+", service["image"])
        for volume in service.get("volumes", ()):
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in whole["volumes"]
    for name, secret in whole["secrets"].items():
        path = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", secret["file"])
        assert path == f"./secrets/{name}" or (DEPLOY / path).exists()
    # Nothing in that folder is ever committed.
    assert (DEPLOY / "secrets" / ".gitignore").read_text().splitlines()[1:] == ["*", "!.gitignore"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published == [f"127.0.0.1:{DEFAULT_REGISTRY_PORT}:{DEFAULT_REGISTRY_PORT}"]


def test_replicas_of_compose_share_the_database_that_it_has(project: Project) -> None:
    whole = compose()
    database = whole["services"]["postgres"]
    settings = database["environment"]
    assert settings["POSTGRES_PASSWORD_FILE"] == "/run/secrets/PGPASSWORD"
    assert database["volumes"] == ["database:/var/lib/postgresql/data"]
    assert whole["networks"]["database"] == {"internal": True}
    for replica in replicas_of_compose().values():
        variables = replica["environment"]
        url = database_url_of(project, variables)
        assert url == f"postgresql://{settings['POSTGRES_USER']}@postgres:5432/{settings['POSTGRES_DB']}"
        assert variables["CREDENTIALS_DIRECTORY"] == "/run/secrets"
        assert {"PGPASSWORD", "PALLAS_SECRET_KEY"} <= set(replica["secrets"])
        assert not set(whole["secrets"]) & set(variables)


def test_the_balancer_knows_every_replica_and_waits_for_streams(project: Project) -> None:
    text = balancer()
    servers = re.findall(r"^    server (\S+) (\S+)$", text, re.MULTILINE)
    assert servers == [(name, f"{name}:{DEFAULT_REGISTRY_PORT}") for name in replicas_of_compose()]
    limits = dict(re.findall(r"^    timeout (\S+) (\w+)$", text, re.MULTILINE))
    longest = max(agent.run_timeout for agent in project.agents.values())
    assert min(seconds(limits[side]) for side in ("client", "server", "tunnel")) > longest
    (stop,) = re.findall(r"hard-stop-after (\w+)", text)
    grace = seconds(compose()["services"]["haproxy"]["stop_grace_period"])
    assert project.drain_timeout < seconds(stop) < grace


@needs_haproxy
def test_haproxy_accepts_its_configuration(tmp_path: Path) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text(balancer())
    done = subprocess.run(
        [str(HAPROXY), "-c", "-f", config], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    # The names of the replicas are known only in their network.
    warnings = [line for line in done.stderr.splitlines() if "[WARNING]" in line or "[ALERT]" in line]
    assert all("could not resolve address 'pallas-" in line for line in warnings), warnings
