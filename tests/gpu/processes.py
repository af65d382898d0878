# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Programs with a time limit, alone or as the ranks of a job; their output goes to a file each."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import time

# For the other ranks, once one has failed: they may have an error to tell.
GRACE_S = 20


@dataclasses.dataclass
class Ended:
    """How programs ended. `problem` is empty if all ended with 0 in time."""
    problem: str
    logs: list[pathlib.Path]

    def text(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.logs)


def _start(command: list[str], environment: dict[str, str], log: pathlib.Path) -> subprocess.Popen:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        # In a session of its own, so that what it starts can be ended with it.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, env=environment, start_new_session=True)


def _end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _await(processes: list[subprocess.Popen], limit_s: float) -> str:
    deadline = time.monotonic() + limit_s
    problem = ""
    try:
        while any(process.poll() is None for process in processes):
            failed = [rank for rank, process in enumerate(processes) if process.poll()]
            if failed and not problem:
                problem = f"rank {failed[0]} ended with {processes[failed[0]].returncode}"
                deadline = min(deadline, time.monotonic() + GRACE_S)
            if time.monotonic() > deadline:
                problem = problem or f"not done after {limit_s:.0f} s"
                break
            time.sleep(0.05)
    finally:  # of an exception, too, as when this program is told to end
        for process in processes:
            _end(process)
    for rank, process in enumerate(processes):
        if process.returncode and not problem:
            problem = f"rank {rank} ended with {process.returncode}"
    return problem if len(processes) > 1 else problem.replace("rank 0 ", "")


def run(command: list[str], environment: dict[str, str], log: pathlib.Path, limit_s: float) -> Ended:
    return Ended(_await([_start(command, environment, log)], limit_s), [log])


def run_ranks(ranks: int, command: list[str], environment: dict[str, str], log: pathlib.Path,
              limit_s: float, of_rank=lambda rank: {}) -> Ended:
    """`command` as the ranks of a job on this host; `of_rank` gives variables of one rank."""
    logs = [log.with_name(f"{log.name}.rank{rank}") for rank in range(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(ranks):
            job = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
                   "ONEBIT_RENDEZVOUS": os.path.join(folder, "meet")}
            variables = {name: str(value) for name, value in job.items()}
            processes.append(_start(command, {**environment, **variables, **of_rank(rank)}, logs[rank]))
        return Ended(_await(processes, limit_s), logs)
