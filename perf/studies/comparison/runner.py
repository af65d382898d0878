# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one command within a time, and reads what it has written.

MPICH 4.0 over TCP often hangs in MPI_Finalize, when all has been measured and written: a rank that is done
waits for the launcher and no longer answers the others. Our program of it leaves another way where it can,
which is where no ranks share a host (perf/studies/baselines/mpi_system.cc). Should it hang nevertheless, it is ended
when its report is complete, and its results count. Of any other system that is a failure.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from comparison.cost import FINISH_SECONDS
from comparison.compared_systems import Files

POLL_SECONDS = 0.02
GRACE_SECONDS = 15  # for a launcher to end its ranks and remove its network
MAX_PROBLEM_LETTERS = 400
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Stopped(Exception):
    """A signal told this program to end."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


def raise_on_signals() -> None:
    """SIGINT, SIGTERM and SIGHUP become Stopped, unless they are ignored, as by nohup."""
    def stop(number: int, _frame) -> None:
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a command."""

    seconds: float
    report: dict | None   # of the tool, as far as it came
    lab: dict | None      # counters of the links
    problem: str | None   # why it is not a success
    is_timeout: bool = False
    was_ended: bool = False  # its report was complete, but it did not end by itself


class Runner:
    """Runs one command after the other in the root of the checkout."""

    def __init__(self, root: pathlib.Path):
        self._root = root
        self._folder = tempfile.TemporaryDirectory(prefix="onebit-compare-")
        self._count = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_) -> None:
        self._folder.cleanup()

    def new_files(self) -> Files:
        """Names in a new folder. Only the folder for meeting is created."""
        self._count += 1
        folder = pathlib.Path(self._folder.name) / str(self._count)
        store = folder / "store"
        store.mkdir(parents=True)
        return Files(folder / "report.json", folder / "lab.json", store)

    def run(self, command: list[str], files: Files, timeout_seconds: float, may_hang: bool) -> Outcome:
        """Waits for the end of the command, or forces it. `may_hang`: the command is known to hang at
        times."""
        begin = time.monotonic()
        output, errors = (files.report.with_name(name) for name in ("stdout", "stderr"))
        with open(output, "wb") as output_file, open(errors, "wb") as errors_file:
            try:
                process = subprocess.Popen(  # pylint: disable=consider-using-with
                    command, cwd=self._root, stdin=subprocess.DEVNULL, stdout=output_file,
                    stderr=errors_file, start_new_session=True, preexec_fn=_ending_with(os.getpid()))
            except OSError as error:
                return Outcome(0, None, None, f"cannot start {command[0]}: {error.strerror}")
        try:
            is_timeout, was_ended = self._wait(process, files, begin + timeout_seconds, may_hang)
        finally:
            self._end(process, command)
        seconds = time.monotonic() - begin
        report = _read_json(files.report)
        problem = None
        if is_timeout:
            problem = f"no end after {timeout_seconds:.0f} s"
        elif process.returncode != 0 and not was_ended:
            problem = f"exit status {process.returncode}: {_last_words(errors, output)}"
        return Outcome(seconds, report, _read_json(files.lab), problem, is_timeout, was_ended)

    def _wait(self, process: subprocess.Popen, files: Files, deadline: float,
              may_hang: bool) -> tuple[bool, bool]:
        """Waits until the command has ended, has been complete for a while, or is late. Returns whether
        it is late, and whether it is complete."""
        complete_since = None
        while process.poll() is None:
            now = time.monotonic()
            if may_hang and complete_since is None and _is_complete(files.report):
                complete_since = now
            if complete_since is not None and now - complete_since > FINISH_SECONDS:
                return False, True
            if now > deadline:
                return True, False
            time.sleep(POLL_SECONDS)
        return False, False

    def _end(self, process: subprocess.Popen, command: list[str]) -> None:
        """Terminates the command, so that launchers can end their ranks, then kills it."""
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if command[0] == "perf/lab":
                self._clean_lab()

    def _clean_lab(self) -> None:
        """Removes what a killed lab has left. If that hangs as well, the next lab does it."""
        try:
            subprocess.run(["perf/lab", "clean"], cwd=self._root, capture_output=True, check=False,
                           timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            print("compare: perf/lab clean does not finish: run it again", file=sys.stderr)


def _ending_with(parent: int):
    """Returns what the child runs first: it makes the kernel end the child together with this program."""
    def prepare() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before that
            os.kill(os.getpid(), signal.SIGTERM)
    return prepare


def _is_complete(report: pathlib.Path) -> bool:
    return bool((_read_json(report) or {}).get("end_time"))


def _read_json(path: pathlib.Path) -> dict | None:
    """Reads a JSON file; None while it does not exist or is incomplete."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _last_words(*logs: pathlib.Path) -> str:
    """The last message of the command, without tables, from the first log that has one."""
    for log in logs:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        words = [line for line in lines if line and not line.startswith(("#", "---", "==="))]
        if words:
            return "; ".join(words[-4:])[:MAX_PROBLEM_LETTERS]
    return "it said nothing"
