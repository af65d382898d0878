# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/lab run: processes on every host, which find their ranks where torchrun and onebit_run put them."""

from __future__ import annotations

import os
import secrets
import shlex

from ethernet_lab.counters import read_counts
from ethernet_lab.errors import SIGNAL_STATUS
from ethernet_lab.lab_launcher import await_end, start_job
from ethernet_lab.network import Network
from ethernet_lab.output_reader import OutputReader
from ethernet_lab.lab_report import JobResult

MASTER_PORT = 29500
STANDARD_OUTPUT = 1
SIGPIPE_STATUS = SIGNAL_STATUS + 13

# Variables of other launchers, which describe another job.
FOREIGN_VARIABLES = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "ONEBIT_HOST", "ONEBIT_RENDEZVOUS", "ONEBIT_SECRET", "ONEBIT_SECRET_FILE"}
FOREIGN_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "HYDRA_", "HYDI_")
# Parameters of Open MPI belong to the user, unless an mpirun has set them for this process.
PARAMETER_PREFIX = "OMPI_MCA_"


def clean_environment() -> dict[str, str]:
    """The environment of this process without variables that would make it a rank of another job."""
    is_launched = "OMPI_COMM_WORLD_RANK" in os.environ

    def is_foreign(name: str) -> bool:
        if name.startswith(PARAMETER_PREFIX):
            return is_launched
        return name in FOREIGN_VARIABLES or name.startswith(FOREIGN_PREFIXES)

    return {name: value for name, value in os.environ.items() if not is_foreign(name)}


def meeting_variables(network: Network) -> dict[str, str]:
    """Variables that tell ranks to meet at the first host."""
    secret = network.folder / "secret"
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w",
              encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
    address = network.hosts[0].address
    return {"MASTER_ADDR": address, "MASTER_PORT": str(MASTER_PORT),
            "ONEBIT_RENDEZVOUS": f"{address}:{MASTER_PORT + 1}", "ONEBIT_SECRET_FILE": str(secret)}


def run_job(network: Network, launcher: str, command: list[str], grace: float,
            ranks_per_host: list[int]) -> JobResult:
    """Runs the command as so many ranks on every host until all have ended."""
    return run_launcher(network, [launcher, "-n", str(sum(ranks_per_host)), "--grace", str(grace), "--",
                                  *_on_host_of_rank(network, command, ranks_per_host)], {}, ranks_per_host)


def _on_host_of_rank(network: Network, command: list[str], ranks_per_host: list[int]) -> list[str]:
    """The command line of every rank, which enters the host that has it."""
    cases = []
    first = 0
    for host, ranks in zip(network.hosts, ranks_per_host, strict=True):
        numbers = "|".join(str(rank) for rank in range(first, first + ranks))
        cases.append(f"{numbers}) export LOCAL_RANK=$((RANK - {first})) LOCAL_WORLD_SIZE={ranks}; "
                     f'exec {shlex.join(host.enter_as_rank())} "$@" ;;')
        first += ranks
    return ["sh", "-c", "case $RANK in\n" + "\n".join(cases) + "\nesac", "sh", *command]


def run_launcher(network: Network, launch: list[str], variables: dict[str, str],
                 ranks_per_host: list[int]) -> JobResult:
    """Runs onebit_run, cleans up after it, and returns what has passed through the links."""
    environment = clean_environment() | variables | meeting_variables(network)
    before = read_counts(network)
    job = start_job(launch, environment)
    reader = OutputReader(job.stdout, STANDARD_OUTPUT)
    status = await_end(job)
    network.kill_processes()  # what they have left would hold the output open
    reader.finish()
    links = [now - then for now, then in zip(read_counts(network), before, strict=True)]
    if reader.is_closed:
        status = SIGPIPE_STATUS
    return JobResult(network.rate, ranks_per_host, links,
                     sorted(reader.counts, key=lambda count: count.rank), status)
