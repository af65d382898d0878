# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/lab mpirun: an MPI program with ranks on every host, started by the MPI's own launcher.

The launcher runs on a host of its own, so that its talk with the hosts is no traffic among them, and
reaches them through remote_shell in the place of ssh.

MPICH 4.0 over UCX's TCP, as Debian 12 has it, hangs in MPI_Finalize more often than not, in the lab or
without it: every rank there asks all others for an acknowledgement, and one that has its own no longer
answers. A program avoids it with MPI_Barrier, fflush and _exit(0) instead, which is a success to mpirun as
long as each rank has a host of its own: where ranks share a host, the launcher kills the neighbours of the first
one that leaves.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil

from ethernet_lab.errors import Unavailable
from ethernet_lab.lab_job import run_launcher
from ethernet_lab.lab_report import JobResult
from ethernet_lab.network import Network

REMOTE_SHELL = str(pathlib.Path(__file__).resolve().parent / "remote_shell")
# Debian's names of both launchers, wherever mpirun points.
LAUNCHERS = {"openmpi": ("mpirun.openmpi", "openmpi-bin"), "mpich": ("mpirun.mpich", "mpich")}
FORGET_RANK = ["env", "-u", "RANK", "-u", "WORLD_SIZE", "-u", "LOCAL_RANK", "-u", "LOCAL_WORLD_SIZE"]


class MpiLauncher:
    """The launcher of one MPI, with the user's arguments for it."""

    def __init__(self, mpi: str, arguments: list[str]):
        program, package = LAUNCHERS[mpi]
        path = shutil.which(program)
        if path is None:
            raise Unavailable(f"there is no {program} here: install {package}")
        self._path = path
        self._arguments = arguments
        self._is_openmpi = mpi == "openmpi"

    def run_job(self, network: Network, launcher: str, command: list[str], grace: float,
                ranks_per_host: list[int]) -> JobResult:
        """Runs the command as one MPI job, with so many ranks on every host, until it has ended."""
        hosts_file = network.folder / "hosts.json"
        hosts_file.write_text(json.dumps({host.address: host.enter_as_rank() for host in network.hosts}))
        variables = {"LAB_HOSTS_FILE": str(hosts_file)}
        if self._is_openmpi:
            own_arguments = _openmpi_arguments(network, ranks_per_host)
        else:
            own_arguments = _mpich_arguments(network, ranks_per_host)
            # Otherwise UCX would take other hosts' memory for local memory, and loopback for a way to
            # them.
            variables |= {name: os.environ.get(name, value) for name, value in
                          (("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "eth0"))}
        mpirun = network.launcher.enter([self._path, *own_arguments, *self._arguments, *command])
        # To onebit_run mpirun is a job of one rank, which the ranks of mpirun must not take over.
        return run_launcher(network, [launcher, "-n", "1", "--grace", str(grace), "--", *FORGET_RANK,
                                      *mpirun], variables, ranks_per_host)


def _openmpi_arguments(network: Network, ranks_per_host: list[int]) -> list[str]:
    # Ranks of a host share the memory that their daemon got when it entered.
    shared_memory = ["vader"] if max(ranks_per_host) > 1 else []
    parameters = {
        "plm_rsh_agent": REMOTE_SHELL,
        "plm_rsh_no_tree_spawn": "1",
        "orte_tmpdir_base": str(network.folder),  # removed with the lab
        "oob_tcp_if_include": "eth0",
        "pml": "ob1",
        "btl": ",".join(["tcp", *shared_memory, "self"]),
        "btl_tcp_if_include": "eth0",
    }
    arguments = ["--allow-run-as-root", "--bind-to", "none", "--map-by", "slot",
                 "-np", str(sum(ranks_per_host)), "-H", _hosts_with_ranks(network, ranks_per_host)]
    for name, value in parameters.items():
        arguments += ["--mca", name, value]
    return arguments


def _mpich_arguments(network: Network, ranks_per_host: list[int]) -> list[str]:
    return ["-launcher", "ssh", "-launcher-exec", REMOTE_SHELL, "-iface", "eth0",
            "-n", str(sum(ranks_per_host)), "-hosts", _hosts_with_ranks(network, ranks_per_host)]


def _hosts_with_ranks(network: Network, ranks_per_host: list[int]) -> str:
    """The list of hosts, which both launchers fill in this order."""
    return ",".join(f"{host.address}:{ranks}"
                    for host, ranks in zip(network.hosts, ranks_per_host, strict=True))
