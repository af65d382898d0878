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

from hosts_guide_test import BY_KUBECTL, LAST_LINE, TRAINER  # pylint: disable=wrong-import-position
from indexed_job import index_of, pods_of  # pylint: disable=wrong-import-position
from kubernetes_cluster import KubernetesCluster  # pylint: disable=wrong-import-position
from markdown_files import code_blocks  # pylint: disable=wrong-import-position

BLOCKS = code_blocks((ROOT / "docs" / "several-hosts.md").read_text("utf-8"))
JOB, BY_TORCHRUN = (content for language, content in BLOCKS if language == "yaml")
COMMANDS = [line for language, content in BLOCKS if language == "sh" for line in content.splitlines()]
CREATE_SECRET, LOGS, DELETE_SECRET = (next(line for line in COMMANDS if line.startswith(beginning))
                                      for beginning in BY_KUBECTL)
MAKE_SECRET_FILE = next(line for line in COMMANDS if line.startswith("(umask"))
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


def with_python(pods: list[dict], command: str) -> list[dict]:
    """The same pods with another command, and with this process's Python at its path."""
    folders = {"environment": sys.prefix, "python": sys.base_prefix, "files": str(FOLDER)}
    if sys.base_prefix == "/usr":
        del folders["python"]  # it is that of the image
    pods = copy.deepcopy(pods)
    for pod in pods:
        container = pod["spec"]["containers"][0]
        container["command"][-1] = f"cd {FOLDER}; PATH={sys.prefix}/bin:$PATH; {command}"
        container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in folders.items()]
        pod["spec"]["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    return pods


class KubernetesTest(unittest.TestCase):
    def setUp(self):
        _, self.pods = documents()

    def tearDown(self):
        CLUSTER.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        # Names must go too: the first pod of the next test has another address.
        self.wait(lambda: not CLUSTER.items("pods") and not CLUSTER.has_names())

    def phases(self) -> dict[int, str]:
        """The phases of pods by their indices."""
        return {index_of(pod): pod["status"].get("phase", "") for pod in CLUSTER.items("pods")}

    def outputs(self) -> dict[int, str]:
        """What pods have written so far."""
        pods = {index_of(pod): pod["metadata"]["name"] for pod in CLUSTER.items("pods")}
        return {index: CLUSTER.run(f"kubectl logs {name} 2>&1").stdout for index, name in pods.items()}

    def wait(self, is_there) -> None:
        # To the kernel all pods together are one group, which has a single process's share of a busy machine.
        deadline = time.monotonic() + 900
        while not is_there():
            if time.monotonic() > deadline:
                self.fail(f"{CLUSTER.logs()}\n{CLUSTER.kubectl('get', 'events')}\n{self.phases()}\n{self.outputs()}")
            time.sleep(0.5)

    def finish(self) -> dict[int, str]:
        """Waits until all pods have succeeded, and returns their output."""
        self.wait(lambda: not {"", "Pending", "Running"} & set(self.phases().values()))
        outputs = self.outputs()
        self.assertEqual(set(self.phases().values()), {"Succeeded"}, outputs)
        return outputs

    def check_demo(self) -> None:
        outputs = self.finish()
        logs = CLUSTER.run(LOGS)
        self.assertEqual(logs.stdout.count(LAST_LINE), 1, logs)
        self.assertEqual({index: LAST_LINE in output for index, output in outputs.items()},
                         {0: True, 1: False, 2: False, 3: False}, outputs)
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
        pods = with_python(self.pods, f"export OMP_NUM_THREADS=1; {BY_TORCHRUN.strip().removeprefix('- ')}")
        CLUSTER.kubectl("create", "-f", "-", document=pods)
        output = "".join(self.finish().values())
        for rank in range(8):
            self.assertIn(f"rank {rank} of 8 has the weights of all", output)

    def test_other_pods_end_when_one_is_lost(self):
        command = self.pods[0]["spec"]["containers"][0]["command"][-1]
        self.assertIn("exec ./demo", command)
        command = command.replace("./demo", "onebit_all_reduce_perf -b 1M -e 1M -n 1000000")
        CLUSTER.kubectl("create", "-f", "-", document=with_python(self.pods, command))
        self.wait(lambda: self.phases()[0] == "Running" and "(dense)" in self.outputs()[0])
        lost = next(pod["metadata"]["name"] for pod in CLUSTER.items("pods") if index_of(pod) == 2)
        CLUSTER.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        self.wait(lambda: self.phases() == {0: "Failed", 1: "Failed", 3: "Failed"})
        for output in self.outputs().values():
            self.assertIn("rank 2 is gone", output)


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
            # The secret is removed and made again, as from one job to the next.
            for line in (MAKE_SECRET_FILE, CREATE_SECRET, DELETE_SECRET, CREATE_SECRET):
                done = CLUSTER.run(line)
                assert done.returncode == 0, done.stdout + done.stderr
            service, _ = documents()
            CLUSTER.kubectl("create", "-f", "-", document=service)
            unittest.main(verbosity=2)
