# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Programs with a time limit, alone or as the ranks of a job; their output goes to a file each.

Each is a process group, which ends as a whole: when its leader has ended, when its time is over, and
when this process ends in whatever way. It stays in the session of this process, so that whoever clears
up after that finds it, too.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Time for the other ranks after one has failed, because they may have errors to report.
GRACE_S = 20
# Time for a program that was told to end: a build removes incomplete files.
END_S = 2

_LIBC = ctypes.CDLL(None)  # before the first fork: nothing may be loaded between fork and exec
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Ended:
    """How programs ended. `problem` is empty if all ended with 0 in time."""
    problem: str
    logs: list[pathlib.Path]
    is_late: bool = False  # ended because their time was over

    def text(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.logs)


@dataclasses.dataclass
class Program:
    command: list[str]
    environment: dict[str, str]
    log: pathlib.Path


@functools.cache
def _warden() -> subprocess.Popen:
    """See warden.py. Out of reach of signals to the group or the session of this process."""
    program = pathlib.Path(__file__).with_name("warden.py")
    warden = subprocess.Popen([sys.executable, "-I", "-S", "-B", str(program)], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True, bufsize=0)

    def dismiss():
        warden.stdin.close()
        warden.wait()

    atexit.register(dismiss)
    return warden


def _tell_warden(group: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # only a second guard, not needed to go on
        _warden().stdin.write(f"{group}\n".encode())


def _start(program: Program) -> subprocess.Popen:
    if shutil.which(program.command[0], path=program.environment.get("PATH")) is None:
        raise FileNotFoundError(f"no program {program.command[0]}")
    starter = os.getpid()

    def tie_to_starter():
        os.setpgid(0, 0)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:  # it ended before the line above
            os.kill(os.getpid(), signal.SIGKILL)
        _tell_warden(os.getpid())  # before the program can start another

    _warden()
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with open(program.log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(program.command, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, env=program.environment,
                                   preexec_fn=tie_to_starter)
    return process


def _signal(group: int, number: int) -> bool:
    """False if there is no process in it any more."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _end(started: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + END_S
    left = [process for process in started if _signal(process.pid, signal.SIGTERM)]
    while left and time.monotonic() < deadline:
        for process in left:
            process.poll()  # would stay in its group otherwise
        left = [process for process in left if _signal(process.pid, 0)]
        time.sleep(0.02 if left else 0)
    for process in left:
        _signal(process.pid, signal.SIGKILL)
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold on to it
            process.wait(END_S)
            _tell_warden(-process.pid)


def _await(started: list[subprocess.Popen], limit_s: float) -> tuple[str, bool]:
    """What went wrong while they ran, and whether that is the time they took."""
    deadline = time.monotonic() + limit_s
    problem = ""
    while any(process.poll() is None for process in started):
        failed = [rank for rank, process in enumerate(started) if process.poll()]
        if failed and not problem:
            problem = f"rank {failed[0]} ended with {started[failed[0]].returncode}"
            deadline = min(deadline, time.monotonic() + GRACE_S)
        if time.monotonic() > deadline:
            return problem or f"not done after {limit_s:.0f} s", not problem
        time.sleep(0.05)
    return problem, False


def _run(programs: list[Program], limit_s: float) -> Ended:
    started = []
    try:
        for program in programs:
            started.append(_start(program))
        problem, is_late = _await(started, limit_s)
    finally:  # of an exception, too, as when this program is told to end
        _end(started)
    for rank, process in enumerate(started):
        if process.returncode and not problem:
            problem = f"rank {rank} ended with {process.returncode}"
    if len(started) == 1:
        problem = problem.replace("rank 0 ", "")
    return Ended(problem, [program.log for program in programs], is_late)


def run(command: list[str], environment: dict[str, str], log: pathlib.Path, limit_s: float) -> Ended:
    return _run([Program(command, environment, log)], limit_s)


def run_ranks(ranks: int, command: list[str], environment: dict[str, str], log: pathlib.Path,
              limit_s: float, of_rank=lambda rank: {}) -> Ended:
    """`command` as the ranks of a job on this host; `of_rank` gives variables of one rank."""
    with tempfile.TemporaryDirectory() as folder:
        programs = []
        for rank in range(ranks):
            job = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
                   "ONEBIT_RENDEZVOUS": os.path.join(folder, "meet")}
            variables = {name: str(value) for name, value in job.items()}
            programs.append(Program(command, {**environment, **variables, **of_rank(rank)},
                                    log.with_name(f"{log.name}.rank{rank}")))
        return _run(programs, limit_s)
