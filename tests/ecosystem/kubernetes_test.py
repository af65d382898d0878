# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the job that docs/several-hosts.md has for Kubernetes, on a cluster of two nodes.

    kubernetes_test.py KUBERNETES DEBIAN [TEST...]

KUBERNETES is the folder of make-kubernetes, DEBIAN that of an installed Debian 12. The package of Python and PyTorch
are those of this process's environment.
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import onebit

ROOT = pathlib.Path(__file__).resolve().parents[2]
for part in ("layout", "perf", "support"):
    sys.path.insert(0, str(ROOT / "tests" / part))

from hosts_guide_test import LAST_LINE, TRAINER  # pylint: disable=wrong-import-position
from indexed_job import pods_of  # pylint: disable=wrong-import-position
from kubernetes_cluster import KubernetesCluster  # pylint: disable=wrong-import-position
from markdown_files import code_blocks  # pylint: disable=wrong-import-position

BLOCKS = code_blocks((ROOT / "docs" / "several-hosts.md").read_text("utf-8"))
JOB = next(content for language, content in BLOCKS if language == "yaml")
COMMANDS = [line for language, content in BLOCKS if language == "sh" for line in content.splitlines()]
WAIT = "until getent hosts demo-0.onebit; do sleep 1; done; "
IMAGE = "registry.example.org/demo"
CLUSTER: KubernetesCluster
FOLDER: pathlib.Path


def documents() -> tuple[dict, list[dict]]:
    """The page's Service, and the pods of its Job."""
    text = CLUSTER.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f",
                           str(FOLDER / "job.yaml"))
    service, end = json.JSONDecoder().raw_decode(text)
    pods = pods_of(json.loads(text[end:]))
    for pod in pods:
        pod["spec"]["containers"][0]["imagePullPolicy"] = "Never"  # there is no registry
    return service, pods


def with_python(pods: list[dict], command: str, drop: tuple[str, ...] = ()) -> list[dict]:
    """The same pods with another command, and with this process's Python at its path, without some variables."""
    folders = {"environment": sys.prefix, "python": sys.base_prefix, "files": str(FOLDER)}
    if sys.base_prefix == "/usr":
        del folders["python"]  # it is that of the image
    pods = copy.deepcopy(pods)
    for pod in pods:
        container = pod["spec"]["containers"][0]
        container["command"][-1] = WAIT + command
        container["env"] = [variable for variable in container["env"] if variable["name"] not in drop]
        container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in folders.items()]
        pod["spec"]["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    return pods


class KubernetesTest(unittest.TestCase):
    def setUp(self):
        self.service, self.pods = documents()

    def tearDown(self):
        CLUSTER.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")

    def phases(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in CLUSTER.items("pods")}

    def wait(self, is_there) -> None:
        deadline = time.monotonic() + 90
        while not is_there():
            if time.monotonic() > deadline:
                self.fail(f"{self.phases()}\n{CLUSTER.kubectl('get', 'events')}\n{CLUSTER.logs()}")
            time.sleep(0.5)

    def finish(self) -> dict[str, str]:
        """What each pod wrote, when all have ended well."""
        self.wait(lambda: not {"", "Pending", "Running"} & set(self.phases().values()))
        outputs = {name: CLUSTER.kubectl("logs", name) for name in self.phases()}
        self.assertEqual(set(self.phases().values()), {"Succeeded"}, outputs)
        return outputs

    def check_demo(self) -> None:
        outputs = self.finish()
        self.assertEqual(sorted(outputs), ["demo-0", "demo-1", "demo-2", "demo-3"])
        self.assertEqual([LAST_LINE in outputs[name] for name in sorted(outputs)], [True, False, False, False], outputs)
        self.assertNotIn("without a secret", "".join(outputs.values()))

    def test_job_of_the_page(self):
        CLUSTER.kubectl("create", "-f", "-", document=self.pods)
        self.check_demo()
        self.assertEqual({pod["spec"]["nodeName"] for pod in CLUSTER.items("pods")}, {"node0", "node1"})

    def test_first_pod_comes_last(self):
        CLUSTER.kubectl("create", "-f", "-", document=self.pods[1:])
        self.wait(lambda: list(self.phases().values()) == ["Running"] * 3)
        CLUSTER.kubectl("create", "-f", "-", document=self.pods[:1])
        self.check_demo()

    def test_torchrun(self):
        options = "--node-rank $JOB_COMPLETION_INDEX --master-addr demo-0.onebit"
        self.assertIn(f"`{options}`", (ROOT / "docs" / "several-hosts.md").read_text("utf-8"))
        command = (f"OMP_NUM_THREADS=1 exec {sys.prefix}/bin/torchrun --nnodes 4 --nproc-per-node 2 {options} "
                   f"--master-port 29500 {FOLDER}/train.py")
        CLUSTER.kubectl("create", "-f", "-", document=with_python(
            self.pods, command, drop=("WORLD_SIZE", "ONEBIT_RENDEZVOUS", "ONEBIT_SECRET")))
        output = "".join(self.finish().values())
        for rank in range(8):
            self.assertIn(f"rank {rank} of 8 has the weights of all", output)

    def test_other_pods_end_when_one_is_lost(self):
        command = f"RANK=$JOB_COMPLETION_INDEX exec {sys.prefix}/bin/onebit_all_reduce_perf -b 1M -e 1M -n 1000000"
        CLUSTER.kubectl("create", "-f", "-", document=with_python(self.pods, command))
        self.wait(lambda: self.phases()["demo-0"] == "Running" and "(dense)" in CLUSTER.kubectl("logs", "demo-0"))
        CLUSTER.kubectl("delete", "pod", "demo-2", "--grace-period=0", "--force")
        self.wait(lambda: list(self.phases().values()) == ["Failed"] * 3)
        for name in self.phases():
            self.assertIn("rank 2 is gone", CLUSTER.kubectl("logs", name))


def make_image(debian: pathlib.Path) -> pathlib.Path:
    """An image with README's program and the library, as an archive."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (FOLDER / "demo.c").write_text(next(content for language, content in code_blocks(readme) if language == "c"))
    library = pathlib.Path(onebit.library_path())
    packages = pathlib.Path(onebit.__file__).parents[1]
    subprocess.run(["cc", "-std=c11", FOLDER / "demo.c", "-o", FOLDER / "demo", "-I", ROOT / "include", library,
                    f"-Wl,-rpath,/opt/{library.parent.relative_to(packages)}"], check=True)
    layout = FOLDER / "image"
    image = ["--image", f"{layout}:latest"]
    files = {debian: "/", packages / "onebit": "/opt/onebit", packages / "onebit.libs": "/opt/onebit.libs",
             FOLDER / "demo": "/demo"}
    commands = [["init", "--layout", str(layout)], ["new", *image]]
    commands += [["insert", *image, str(source), target] for source, target in files.items()]
    # This is for the container that holds a pod's network; others have commands of their own.
    commands += [["config", *image, "--config.env=PATH=/usr/sbin:/usr/bin:/sbin:/bin", "--config.entrypoint=sleep",
                  "--config.entrypoint=infinity"]]
    for command in commands:
        subprocess.run(["umoci", *command], check=True)
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0].setdefault("annotations", {})["io.containerd.image.name"] = f"{IMAGE}:latest"
    (layout / "index.json").write_text(json.dumps(index))
    archive = FOLDER / "image.tar"
    subprocess.run(["tar", "-c", "-f", archive, "-C", layout, "."], check=True)
    return archive


if __name__ == "__main__":
    kubernetes, debian_folder = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    with tempfile.TemporaryDirectory() as name:
        FOLDER = pathlib.Path(name)
        (FOLDER / "job.yaml").write_text(JOB)
        (FOLDER / "train.py").write_text(TRAINER)
        (FOLDER / "cluster").mkdir()
        images = {f"{IMAGE}:latest": make_image(debian_folder)}
        with KubernetesCluster(FOLDER / "cluster", kubernetes, images) as CLUSTER:
            for line in COMMANDS:
                if line.startswith(("(umask", "kubectl create secret")):
                    done = CLUSTER.run(line)
                    assert done.returncode == 0, done.stdout + done.stderr
            CLUSTER.kubectl("create", "-f", "-", document=documents()[0])
            unittest.main(verbosity=2)
