"""The image and the manifests say what the server can be told, and what Kubernetes reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from starlette.testclient import TestClient

import regard
from regard.cli._app import app as commands
from regard.serving import app_of

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
BASE, CUDA = KUBERNETES / "base", KUBERNETES / "cuda"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

HOWTO = (ROOT / "docs/howto/serving_cluster.md").read_text(encoding="utf-8")

yaml = pytest.importorskip("yaml")

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
"""From the first in which a pod may sleep before it stops (`preStop`)."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def named(folder: Path) -> list[str]:
    """What the kustomization of a folder names."""
    said = read(folder / "kustomization.yaml")
    return said["resources"] + [each["path"] for each in said.get("patches", [])]


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    """The base's objects, by their kind."""
    return {each["kind"]: each for each in (read(BASE / name) for name in named(BASE))}


@pytest.fixture(scope="module")
def pod(base: dict[str, Any]) -> dict[str, Any]:
    return base["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    [container] = pod["containers"]
    return container


def serve(words: list[str]) -> dict[str, Any]:
    """What the command line understands."""
    assert words[0] == "serve"
    command = typer.main.get_command(commands).commands["serve"]  # type: ignore[attr-defined]
    return command.make_context("serve", words[1:]).params


@pytest.fixture(scope="module")
def kubernetes() -> Any:
    """What knows the fields; it takes seconds to import."""
    return pytest.importorskip("kubernetes_validate")


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_reads_every_field(kubernetes: Any, base: dict[str, Any], version: str) -> None:
    for document in base.values():
        kubernetes.validate(document, version, strict=True)


def test_a_misspelt_field_is_found(kubernetes: Any, base: dict[str, Any]) -> None:
    wrong = base["Service"] | {"spec": base["Service"]["spec"] | {"prots": []}}
    with pytest.raises(kubernetes.ValidationError, match="prots"):
        kubernetes.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", [BASE, CUDA], ids=lambda folder: folder.name)
def test_every_file_is_named_and_exists(folder: Path) -> None:
    files = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
    assert {each for each in named(folder) if not each.startswith("..")} == files
    assert all((folder / each).exists() for each in named(folder))


@pytest.mark.parametrize("folder", [BASE, CUDA], ids=lambda folder: folder.name)
def test_kustomize_renders_it(kubernetes: Any, folder: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True)
    objects = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    for document in objects.values():
        kubernetes.validate(document, VERSIONS[-1], strict=True)
    [container] = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] != "regard"
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (folder == CUDA)
    assert serve(container["args"])


def test_ports_agree(base: dict[str, Any], container: dict[str, Any]) -> None:
    [port] = container["ports"]
    told = serve(container["args"])
    assert told["port"] == port["containerPort"]
    assert told["host"] == "0.0.0.0"
    assert base["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert base["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port["name"]
    assert {each["httpGet"]["port"] for each in probes(container).values()} == {port["name"]}
    notes = base["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == str(port["containerPort"])


def probes(container: dict[str, Any]) -> dict[str, Any]:
    return {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}


def test_probes_are_answered(container: dict[str, Any], model: regard.Model) -> None:
    """Whether it is ready is another matter."""
    with TestClient(app_of([model])) as client:
        for name, probe in probes(container).items():
            status = client.get(probe["httpGet"]["path"]).status_code
            assert status == 200 or (status == 503 and name != "liveness"), name


def test_the_autoscaler_reads_a_metric_that_is_there(base: dict[str, Any], model: regard.Model) -> None:
    metric = base["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    path = base["Deployment"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]
    told = TestClient(app_of([model])).get(path)
    assert told.status_code == 200
    assert f"# TYPE {metric} gauge" in told.text
    [rule] = re.findall(r"```yaml\n(.*?)```", HOWTO, re.DOTALL)
    [adapted] = yaml.safe_load(rule)["rules"]
    assert adapted["seriesQuery"].startswith(f"{metric}{{")
    assert adapted["name"] == {"as": metric}


def test_all_select_the_same_pods(base: dict[str, Any]) -> None:
    labels = base["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert base["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert base["Service"]["spec"]["selector"] == labels
    assert base["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert base["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = base["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", base["Deployment"]["metadata"]["name"])
    assert "replicas" not in base["Deployment"]["spec"]


def test_it_ends_in_the_time_that_it_has(pod: dict[str, Any], container: dict[str, Any]) -> None:
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    told = serve(container["args"])
    assert pause + told["drain_delay"] + told["drain"] < pod["terminationGracePeriodSeconds"]


def test_no_rights(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    [user] = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert user == (str(pod["securityContext"]["runAsUser"]), str(pod["securityContext"]["runAsGroup"]))


def test_files_are_mounted(pod: dict[str, Any], container: dict[str, Any]) -> None:
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in pod["volumes"]}
    keys = serve(container["args"])["api_key_file"]
    assert str(keys.parent) == mounts["keys"]
    # What the image sets its homes to can be written.
    assert set(re.findall(r"\bHOME=(\S+)", DOCKERFILE)) == {mounts["tmp"]}


def test_the_image_runs_the_command_line(container: dict[str, Any]) -> None:
    [words] = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    told = serve(yaml.safe_load(words))
    [port] = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)
    assert told["port"] == int(port)
    assert told["host"] == "0.0.0.0"
    assert re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE) == ['["regard"]']
    assert "HF_HUB_OFFLINE=1" in DOCKERFILE


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")  # beside Python, whether or not that is on the PATH
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
