# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of MPI, started by the launcher of either, with an end in time."""

import os
import shutil
import signal
import subprocess
import sys

LAUNCHERS = {
    # One rank per core is what Open MPI expects, and it refuses to be root.
    "openmpi": (["mpirun.openmpi", "mpirun"],
                ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]),
    "mpich": (["mpiexec.mpich", "mpirun.mpich"], []),
}


def launcher(abi: str) -> list[str]:
    names, flags = LAUNCHERS[abi]
    for name in names:
        if shutil.which(name):
            return [name, *flags]
    print(f"there is no launcher of {abi} ({', '.join(names)})")
    sys.exit(77)


# For a job that hangs. Ranks of MPI wait by polling, so on a busy machine each waits for a core.
HANG_SECONDS = 900


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith("ONEBIT_") or name == "ONEBIT_PLUGIN_PATH"}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return inherited | root | variables


def run(abi: str, ranks: int, command: list[str], seconds: float = HANG_SECONDS,
        flags: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess:
    """Output and status of the job. One that does not end in time is an error, and is ended."""
    return start([*launcher(abi), *flags, "-np", str(ranks), *command], seconds, **variables)


def setting(abi: str, name: str, value: str) -> list[str]:
    """Flags that give a variable to the ranks of one part of a job."""
    return ["-x", f"{name}={value}"] if abi == "openmpi" else ["-env", name, value]


def start(whole: list[str], seconds: float, **variables: str) -> subprocess.CompletedProcess:
    """As run, for a launcher with all its arguments."""
    process = subprocess.Popen(whole, env=environment(**variables), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               errors="replace", start_new_session=True)
    try:
        output, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, error = process.communicate()
        raise AssertionError(f"{whole}: not over after {seconds} s:\n{output}\n{error}") from None
    return subprocess.CompletedProcess(whole, process.returncode, output, error)


def succeed(abi: str, ranks: int, command: list[str], seconds: float = HANG_SECONDS,
            **variables: str) -> str:
    """The output of a job that must succeed."""
    done = run(abi, ranks, command, seconds, **variables)
    assert done.returncode == 0, (done.args, done.returncode, done.stdout, done.stderr)
    return done.stdout
