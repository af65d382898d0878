# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Slurm on the hosts of ssh_hosts: a slurmd on each, a slurmctld on the first, and a munged for all of them.

All files are in the folder of the hosts; nothing of the machine is read or changed.
"""

import os
import shutil
import signal
import subprocess
import time

import ssh_hosts

CONFIG = """
ClusterName=lab
SlurmctldHost={first.name}({first.address})
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=2
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=10 State=UP
"""
DAEMONS = ("munged", "slurmctld", "slurmd")


def missing() -> str:
    """The first program that is not installed, or ""."""
    programs = (*DAEMONS, "srun", "sinfo")
    return next((name for name in programs if _path(name) is None), "")


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")


class SlurmCluster:
    """`variables` are those of somebody who starts jobs there."""

    def __init__(self, hosts: ssh_hosts.SshHosts):
        self._hosts = hosts
        self._folder = hosts.folder / "slurm"
        self._daemons: list[subprocess.Popen] = []
        self.variables = {"SLURM_CONF": str(self._folder / "slurm.conf")}

    def __enter__(self) -> "SlurmCluster":
        self._folder.mkdir()
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        hosts = self._hosts.hosts
        first, first_host = next(iter(hosts.items()))
        # Four tasks fit, whatever the machine has.
        nodes = "\n".join(f"NodeName={name} NodeAddr={host.address} CPUs=4 State=UNKNOWN"
                          for name, host in hosts.items())
        (self._folder / "slurm.conf").write_text(CONFIG.format(
            folder=self._folder, first=first_host, nodes=nodes, names=",".join(hosts)))
        # Control groups are not used, but a plugin for them is loaded.
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        try:
            self._start(first, "munged", "--foreground", "--force", f"--socket={self._folder}/munge.socket",
                        f"--key-file={key}", *(f"--{file}-file={self._folder}/munged.{file}"
                                               for file in ("pid", "log", "seed")))
            self._wait(lambda: (self._folder / "munge.socket").exists())
            self._start(first, "slurmctld", "-D")
            for name in hosts:
                (self._folder / f"spool-{name}").mkdir()
                self._start(name, "slurmd", "-D", "-N", name)
            self._wait(lambda: self._idle() == len(hosts))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        # Jobs that hang would run beside whatever comes next.
        subprocess.run(self._hosts.on(self._hosts.launcher, "timeout", "20", "scancel", "--user=root"),
                       env=self._hosts.environment() | self.variables, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def logs(self) -> str:
        """Returns what the daemons wrote."""
        return "".join(f"-- {path.name}\n{path.read_text('utf-8', 'replace')}"
                       for path in sorted(self._folder.glob("*.log")))

    def _start(self, host: str, program: str, *arguments: str) -> None:
        command = self._hosts.on(self._hosts.hosts[host], str(_path(program)), *arguments)
        self._daemons.append(subprocess.Popen(  # pylint: disable=consider-using-with
            command, env=self._hosts.environment() | self.variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def _idle(self) -> int:
        """Nodes that take jobs."""
        command = self._hosts.on(self._hosts.launcher, "sinfo", "--noheader", "--states=idle", "--format=%D")
        found = subprocess.run(command, env=self._hosts.environment() | self.variables, text=True,
                               capture_output=True, check=False, timeout=60)
        return sum(int(line) for line in found.stdout.split() if line.isdigit())

    def _wait(self, is_ready) -> None:
        deadline = time.monotonic() + 60
        while not is_ready():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self._daemons):
                raise RuntimeError(f"Slurm does not start:\n{self.logs()}")
            time.sleep(0.2)
