# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/several-hosts.md as they stand there, on two hosts with an sshd each.

    hosts_guide_test.py ONEBIT_RUN COMPILER LIBRARY [TEST...]

torchrun and the package of Python are those of this process's environment.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import slurm_cluster
import ssh_hosts

sys.path.insert(0, str(ssh_hosts.ROOT / "tests" / "layout"))

from markdown_files import code_blocks  # pylint: disable=wrong-import-position

BLOCKS = code_blocks((ssh_hosts.ROOT / "docs" / "several-hosts.md").read_text("utf-8"))
COMMANDS = [line for language, content in BLOCKS if language == "sh" for line in content.splitlines()]
BY_KUBECTL = ("kubectl create secret", "kubectl logs", "kubectl delete secret")  # tests/ecosystem/kubernetes_test.py
NOT_RUN = ("kubectl apply -f job.yaml", "kubectl delete -f job.yaml")  # its release knows no Indexed Jobs
BY_SRUN = ("ONEBIT_SECRET_FILE=$HOME/.onebit-secret srun",
           "ONEBIT_SOCKET_IFNAME=eth0 ONEBIT_SECRET_FILE=$HOME/.onebit-secret srun")
BY_ONEBIT_RUN = ("onebit_run", "ONEBIT_SOCKET_IFNAME=eth0 onebit_run")
BY_MPI = ("mpirun", "mpiexec.mpich")
BY_TORCHRUN = ("torchrun", "GLOO_SOCKET_IFNAME=eth0 torchrun")
BY_TORCHRUN_WITHOUT_A_GROUP = ("ONEBIT_SECRET_FILE=~/.onebit-secret torchrun",)
HOSTS: ssh_hosts.SshHosts
LAST_LINE = "mean of 1000 results:"
TRAINER = """
import torch
from torch.nn.parallel import DistributedDataParallel

import onebit.torch

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
replica = DistributedDataParallel(torch.nn.Linear(256, 64))
hook = onebit.torch.State(replica)
replica.register_comm_hook(hook, onebit.torch.ddp_hook)
optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(6):
    optimizer.zero_grad()
    replica(torch.randn(16, 256)).square().mean().backward()
    optimizer.step()
weights = [torch.empty(64, 256) for _ in range(torch.distributed.get_world_size())]
torch.distributed.all_gather(weights, replica.module.weight.detach())
assert all(torch.equal(weights[0], other) for other in weights)
print(f"rank {rank} of {len(weights)} has the weights of all", flush=True)
torch.distributed.destroy_process_group()
"""


def starting_with(*beginnings: str) -> list[str]:
    """The guide's commands that begin so."""
    found = [line for line in COMMANDS if line.startswith(beginnings)]
    assert found, beginnings
    return found


class HostsGuideTest(unittest.TestCase):
    def start(self, host: str, command: str, **variables: str) -> subprocess.Popen:
        """A command as somebody types it on a host, a or b, or elsewhere."""
        where = HOSTS.hosts.get(host, HOSTS.launcher)
        job = subprocess.Popen(HOSTS.on(where, "sh", "-c", command), cwd=HOSTS.folder / "work", text=True,
                               env=HOSTS.environment() | variables, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(job.kill)
        return job

    def finish(self, *jobs: subprocess.Popen) -> str:
        """The output of jobs, which must succeed."""
        outputs = [job.communicate(timeout=100)[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), "\n".join(outputs))
        return "".join(outputs)

    def test_every_command_is_run_or_said_not_to_be(self):
        run = (*BY_ONEBIT_RUN, *BY_MPI, *BY_KUBECTL, *BY_SRUN, *BY_TORCHRUN, *BY_TORCHRUN_WITHOUT_A_GROUP, "(umask")
        self.assertEqual([line for line in COMMANDS if not line.startswith((*NOT_RUN, *run))], [])

    def test_onebit_run(self):
        for command in starting_with(*BY_ONEBIT_RUN):
            output = self.finish(self.start("", command))
            self.assertEqual(output.count(LAST_LINE), 1, output)
            self.assertNotIn("WARN", output)

    def test_mpirun(self):
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        for command in starting_with(*BY_MPI):
            with self.subTest(command=command):
                name = command.split()[0]
                if shutil.which(name) is None:
                    self.skipTest(f"there is no {name} here: install openmpi-bin and mpich")
                if name == "mpirun" and "Open MPI" not in subprocess.getoutput("mpirun --version"):
                    command = command.replace("mpirun", "mpirun.openmpi", 1)
                output = self.finish(self.start("", command, **as_root))
                self.assertEqual(output.count(LAST_LINE), 1, output)
                self.assertNotIn("without a secret", output)

    def test_srun(self):
        if missing := slurm_cluster.missing():
            self.skipTest(f"there is no {missing} here: install slurmctld, slurmd, slurm-client and munge")
        with slurm_cluster.SlurmCluster(HOSTS) as cluster:
            for command in starting_with(*BY_SRUN):
                job = self.start("", command, **cluster.variables)
                try:
                    output = self.finish(job)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    self.fail(f"{command}\n{error}\n{cluster.logs()}")
                self.assertEqual(output.count(LAST_LINE), 1, output)
                self.assertNotIn("without a secret", output)

    def test_variables_of_kubernetes(self):
        yaml = next(content for language, content in BLOCKS if language == "yaml")
        command = re.search(r"- -c\n +- (.*)", yaml)[1]
        variables = dict(re.findall(r'- name: ([A-Z_]+)\n +value: "?([^"\n]*)', yaml))
        self.assertEqual(sorted(variables), ["ONEBIT_CONNECT_TIMEOUT_MS", "ONEBIT_RENDEZVOUS", "WORLD_SIZE"])
        file = HOSTS.folder / ".onebit-secret"
        # kubectl takes the file as it is, with its line feed. A rank may also have the file itself.
        secrets = [{"ONEBIT_SECRET": file.read_text()}] * 3 + [{"ONEBIT_SECRET_FILE": str(file)}]
        jobs = [self.start("ab"[rank % 2], command, **variables, JOB_COMPLETION_INDEX=str(rank), **secret)
                for rank, secret in enumerate(secrets)]
        output = self.finish(*jobs)
        self.assertEqual(output.count(LAST_LINE), 1, output)
        self.assertNotIn("without a secret", output)

    def run_torchrun(self, commands: list[str]) -> str:
        if shutil.which("torchrun") is None:
            self.skipTest("there is no torchrun here: install python3-torch, or run .ci/ecosystem hosts")
        if "--node-rank" not in subprocess.getoutput("torchrun --help"):
            self.skipTest("this torchrun is older than PyTorch 2: run .ci/ecosystem hosts")
        return self.finish(*(self.start(host, command, OMP_NUM_THREADS="1")
                             for host, command in zip("ab", commands, strict=True)))

    def test_torchrun(self):
        for beginning in BY_TORCHRUN:
            with self.subTest(beginning=beginning):
                output = self.run_torchrun(starting_with(beginning))
                for rank in range(8):
                    # Ranks of one host may write their lines at once, and the ends of lines after that.
                    self.assertIn(f"rank {rank} of 8 has the weights of all", output)

    def test_torchrun_without_a_process_group(self):
        output = self.run_torchrun(starting_with(*BY_TORCHRUN_WITHOUT_A_GROUP))
        self.assertEqual(output.count(LAST_LINE), 1, output)
        self.assertNotIn("without a secret", output)


def prepare(launcher: str, compiler: str, library: str) -> None:
    """Makes the files that the guide speaks of, and the secret as it says."""
    work = HOSTS.folder / "work"
    work.mkdir()
    (HOSTS.folder / "bin" / "onebit_run").symlink_to(launcher)
    readme = (ssh_hosts.ROOT / "README.md").read_text("utf-8")
    (work / "demo.c").write_text(next(content for language, content in code_blocks(readme) if language == "c"))
    subprocess.run([compiler, "-std=c11", work / "demo.c", "-o", work / "demo", "-I", ssh_hosts.ROOT / "include",
                    library, f"-Wl,-rpath,{os.path.dirname(library)}"], check=True)
    files = [content for language, content in BLOCKS if language == "text"]
    (work / "hosts").write_text(files[0])
    (work / "machines").write_text(files[1])
    (work / "train.py").write_text(TRAINER)
    with open(HOSTS.folder / "etc_hosts", "a", encoding="ascii") as names:
        names.write(f"{HOSTS.hosts['a'].address} demo-0.onebit\n")
    for command in starting_with("(umask"):
        subprocess.run(["sh", "-c", command], env=HOSTS.environment(), check=True)


if __name__ == "__main__":
    if reason := ssh_hosts.problem() or ("" if shutil.which("openssl") else "there is no openssl here: install it"):
        print(reason)
        sys.exit(77)
    run, cc, lib = (sys.argv.pop(1) for _ in range(3))
    with tempfile.TemporaryDirectory() as name:
        with ssh_hosts.SshHosts(pathlib.Path(name), "ab") as HOSTS:
            prepare(os.path.abspath(run), cc, os.path.abspath(lib))
            unittest.main(verbosity=2)
