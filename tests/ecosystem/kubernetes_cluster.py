# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes on hosts of the lab: nodes with a containerd and a kubelet each, and a host with the servers.

The servers are those that make-kubernetes compiles, with etcd and containerd of Debian. dnsmasq takes the place of
CoreDNS, which Debian does not package: it answers for HOST.SERVICE.default.svc.cluster.local, as this job needs it.
All files are in the folder of the cluster. Nothing else of the machine changes, except for control groups of
containers, which are removed when their last process has ended.
"""

import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf"))

from ethernet_lab import namespaces  # pylint: disable=wrong-import-position
from ethernet_lab.lab_guard import Guard  # pylint: disable=wrong-import-position
from ethernet_lab.network import Host, Network  # pylint: disable=wrong-import-position
from ethernet_lab.rates import Rate  # pylint: disable=wrong-import-position

SECONDS_TO_START = 180
SECONDS_TO_END = 20
CONTROL_GROUPS = pathlib.Path("/sys/fs/cgroup")
DOMAIN = "default.svc.cluster.local"

# A node sees the machine's files. What it writes to /run, /var/lib and /var/log is its own. Everything on it ends with
# its first process, and that one ends with us.
ENTER_NODE = ["setpriv", "--pdeathsig", "KILL", "nsenter", "--net={network}", "unshare", "--mount", "--uts", "--ipc",
              "--pid", "--fork", "--kill-child", "--mount-proc"]
NODE = """
set -e
folder=$1 images=$2
shift 2
for own in /run /var/log; do mount -t tmpfs tmpfs "$own"; done
mkdir /run/upper /run/work
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work /var/lib
# A kubelet sets these for the machine; here it sets copies.
settings="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops"
for setting in $settings kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
  mkdir -p "/run/sys/${setting%/*}"
  cat "/proc/sys/$setting" >"/run/sys/$setting"
  mount --bind "/run/sys/$setting" "/proc/sys/$setting"
done
mkdir "$folder/containerd"
mount -t tmpfs tmpfs "$folder/containerd"
containerd --config "$folder/containerd.toml" >"$folder/containerd.log" 2>&1 &
until ctr -a /run/containerd.sock version >"$folder/ctr.log" 2>&1; do kill -0 $!; sleep 0.2; done
for image in $images; do ctr -a /run/containerd.sock -n k8s.io images import "$image"; done
exec "$@"
"""
# A process without CAP_SYS_RESOURCE, as in a container, cannot protect pods from a lack of memory.
CONTAINERD = """
version = 2
root = "{folder}/containerd/root"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"}, "clusterDomain": "cluster.local", "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False, "enforceNodeAllocatable": [], "failSwapOn": False, "hairpinMode": "none",
    # Pods are not to end because the machine's disk is nearly full.
    "evictionHard": {"nodefs.available": "1Mi", "imagefs.available": "1Mi", "memory.available": "10Mi"},
}


def _container_groups() -> set[pathlib.Path]:
    """The control groups of all containers that any containerd of this machine runs for Kubernetes."""
    found = (*CONTROL_GROUPS.glob("k8s.io/*"), *CONTROL_GROUPS.glob("*/k8s.io/*"))
    return {path for path in found if path.is_dir()}


def _kubeconfig(server: str, token: str) -> dict:
    return {"apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "lab", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]}


def _pod_network(subnet: str) -> dict:
    addresses = {"type": "host-local", "dataDir": "/run/addresses", "subnet": subnet, "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": addresses}]}


class KubernetesCluster:
    """A cluster with nodes node0, node1, ...; `variables` is the environment in which kubectl reaches it."""

    def __init__(self, folder: pathlib.Path, programs: pathlib.Path, images: dict[str, pathlib.Path], nodes: int = 2):
        """images: archives by name; containers of the first one hold the network of a pod."""
        self._folder = folder
        self._programs = programs
        self._images = images
        self._network = Network(nodes, Rate.parse("none"), has_launcher=True)
        self._servers = self._network.launcher
        self._guard = Guard()
        self._daemons: dict[str, subprocess.Popen] = {}
        self._ends = threading.Event()
        self._published = ""
        self._foreign_groups = _container_groups()
        self._names = threading.Thread(target=self._publish_names)
        self.variables = os.environ | {"KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}

    def __enter__(self) -> "KubernetesCluster":
        self._guard.__enter__()
        try:
            self._network.__enter__()
            self._write_files()
            self._start_servers()
            for index, host in enumerate(self._network.hosts):
                self._start_node(index, host)
            self._wait("nodes that are ready", lambda: self._ready_nodes() == len(self._network.hosts))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._ends.set()
        if self._names.is_alive():
            self._names.join()
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        self._network.__exit__()
        self._guard.__exit__()
        self._remove_control_groups()

    def run(self, command: str) -> subprocess.CompletedProcess:
        """Runs a line of the shell where kubectl reaches the cluster."""
        return subprocess.run(self._servers.enter(["sh", "-c", command]), cwd=self._folder, env=self.variables,
                              text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)

    def kubectl(self, *arguments: str, document: object = None) -> str:
        """The output of kubectl, which must succeed. A document, or a list of them, becomes its standard input."""
        text = None
        if document is not None:
            documents = document if isinstance(document, list) else [document]
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        done = subprocess.run(self._servers.enter(["kubectl", *arguments]), env=self.variables, text=True, input=text,
                              capture_output=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def items(self, kind: str) -> list[dict]:
        return json.loads(self.kubectl("get", kind, "-o", "json"))["items"]

    def logs(self) -> str:
        """The last 1000 characters of each server's log."""
        return "".join(f"-- {path.relative_to(self._folder)}\n{path.read_text('utf-8', 'replace')[-1000:]}\n"
                       for path in sorted(self._folder.rglob("*.log")))

    def has_names(self) -> bool:
        """Tells whether any pod can be found by its name."""
        return bool(self._published)

    def _write_files(self) -> None:
        folder, token = self._folder, secrets.token_hex(16)
        key = f"{folder}/signing.key"
        for command in (["genrsa", "-out", key], ["rsa", "-in", key, "-pubout", "-out", f"{folder}/signing.pub"]):
            subprocess.run(["openssl", *command], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        server = f"https://{self._servers.address}:6443"
        (folder / "kubeconfig").write_text(json.dumps(_kubeconfig(server, token)))
        (folder / "resolv.conf").write_text(f"nameserver {self._servers.address}\n")
        (folder / "endpoints").write_text("")

    def _start_servers(self) -> None:
        folder, address = self._folder, self._servers.address
        etcd = "http://127.0.0.1:2379"
        self._serve("etcd", "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}",
                    f"--advertise-client-urls={etcd}", "--listen-peer-urls=http://127.0.0.1:2380")
        # Pods of this lab do not talk to the server, so they need no accounts there.
        self._serve("apiserver", self._programs / "kube-apiserver", f"--etcd-servers={etcd}",
                    f"--advertise-address={address}", f"--bind-address={address}", f"--cert-dir={folder}/certificates",
                    "--service-cluster-ip-range=172.31.0.0/16", f"--token-auth-file={folder}/tokens.csv",
                    f"--service-account-key-file={folder}/signing.pub",
                    f"--service-account-signing-key-file={folder}/signing.key",
                    "--service-account-issuer=https://lab", "--disable-admission-plugins=ServiceAccount",
                    "--authorization-mode=AlwaysAllow", "--kubelet-preferred-address-types=InternalIP")
        self._wait("the server", lambda: self.run("kubectl get --raw /readyz").returncode == 0)
        common = [f"--kubeconfig={folder}/kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1", "--port=0"]
        self._serve("controllers", self._programs / "kube-controller-manager", *common,
                    f"--flex-volume-plugin-dir={folder}/plugins")
        self._serve("scheduler", self._programs / "kube-scheduler", *common)
        self._serve("dns", "dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=/dev/null", "--pid-file=",
                    "--no-resolv", "--no-hosts", f"--listen-address={address}", "--bind-interfaces",
                    "--local=/cluster.local/", f"--addn-hosts={folder}/endpoints")
        self._names.start()

    def _start_node(self, index: int, host: Host) -> None:
        folder, subnet = self._folder / f"node{index}", f"10.244.{index}.0/24"
        (folder / "cni").mkdir(parents=True)
        (folder / "cni" / "pods.conflist").write_text(json.dumps(_pod_network(subnet)))
        (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, sandbox=next(iter(self._images))))
        (folder / "kubelet.json").write_text(json.dumps(KUBELET | {
            "clusterDNS": [self._servers.address], "resolvConf": str(self._folder / "resolv.conf"),
            "volumePluginDir": str(folder / "plugins")}))
        namespaces.call("ip", "netns", "exec", host.namespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for other in (*self._network.hosts, self._servers):
            if other is not host:
                namespaces.call("ip", "-n", other.namespace, "route", "add", subnet, "via", host.address)
        enter = [word.format(network=namespaces.FOLDER / host.namespace) for word in ENTER_NODE]
        images = " ".join(map(str, self._images.values()))
        self._start(f"node{index}", *enter, "sh", "-c", NODE, "sh", str(folder), images,
                    str(self._programs / "kubelet"), f"--config={folder}/kubelet.json",
                    f"--kubeconfig={self._folder}/kubeconfig", f"--root-dir={folder}/kubelet",
                    f"--cert-dir={folder}/pki", f"--hostname-override=node{index}", f"--node-ip={host.address}",
                    "--container-runtime=remote", "--container-runtime-endpoint=unix:///run/containerd.sock")

    def _serve(self, name: str, *command: object) -> None:
        self._start(name, *self._servers.enter([str(word) for word in command]))

    def _start(self, name: str, *command: str) -> None:
        with open(self._folder / f"{name}.log", "wb") as log:
            self._daemons[name] = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _publish_names(self) -> None:
        """Tells dnsmasq the addresses of endpoints. Those that are not ready have none, as in CoreDNS."""
        while not self._ends.wait(0.3):
            try:
                endpoints = self.items("endpoints")
            except (RuntimeError, subprocess.TimeoutExpired):
                continue  # the log of the server says why
            lines = "".join(f"{address['ip']} {address['hostname']}.{endpoint['metadata']['name']}.{DOMAIN}\n"
                            for endpoint in endpoints for subset in endpoint.get("subsets", [])
                            for address in subset.get("addresses", []) if "hostname" in address)
            if lines != self._published:
                (self._folder / "endpoints").write_text(lines)
                self._daemons["dns"].send_signal(signal.SIGHUP)
                self._published = lines

    def _ready_nodes(self) -> int:
        return sum(condition["type"] == "Ready" and condition["status"] == "True"
                   for node in self.items("nodes") for condition in node["status"].get("conditions", []))

    def _wait(self, wanted: str, is_there) -> None:
        deadline = time.monotonic() + SECONDS_TO_START
        while not is_there():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"Kubernetes does not start: no {wanted}, ended: {ended}\n{self.logs()}")
            time.sleep(0.3)

    def _remove_control_groups(self) -> None:
        """Removes what killed containers leave behind: groups without processes, once the last has ended."""
        deadline = time.monotonic() + SECONDS_TO_END
        while True:
            groups = _container_groups() - self._foreign_groups
            for group in (*groups, *CONTROL_GROUPS.glob("k8s.io"), *CONTROL_GROUPS.glob("*/k8s.io")):
                try:
                    group.rmdir()
                except OSError:
                    pass  # it still has processes, or other groups
            if not groups:
                return
            if time.monotonic() > deadline:
                print(f"left behind: {', '.join(map(str, sorted(groups)))}", file=sys.stderr)
                return
            time.sleep(0.1)
