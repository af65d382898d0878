# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a job by onebit_run, which supervises its processes, and waits for its end.

Signals that stop the lab are blocked for good, so that they interrupt neither its construction nor its
removal. They are read where the lab waits for the job, and passed on to it.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys

from ethernet_lab.errors import SIGNAL_STATUS, UsageError

NAME = "onebit_run"
DEFAULT_BUILD = pathlib.Path(__file__).resolve().parents[2] / "build" / "release"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def find_launcher(build: pathlib.Path | None) -> str:
    """The path of onebit_run: that of the build, else that of PATH, else that of the usual build."""
    path = shutil.which(NAME) if build is None else None
    path = path or str((build or DEFAULT_BUILD) / "perf" / NAME)
    if not os.access(path, os.X_OK):
        raise UsageError(f"there is no {path}: build {NAME}, or give --build")
    return path


def block_signals() -> None:
    # Signals that were ignored at our start, as nohup does it, stay ignored.
    stopping = {number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, no child can be waited for
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping | {signal.SIGCHLD})


def is_told_to_stop() -> bool:
    """True if a signal has come; takes it."""
    return signal.sigtimedwait(STOP_SIGNALS, 0) is not None


def start_job(launch: list[str], environment: dict[str, str]) -> subprocess.Popen:
    """Starts onebit_run with its options and the program. It dies with the lab, and with it the job. A
    process group of its own keeps it from the terminal's signals, which we pass on."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *launch], env=environment,
                            stdout=subprocess.PIPE, process_group=0)


def await_end(job: subprocess.Popen) -> int:
    """Waits for the end of the job; returns its status, or 128 + signal if the lab was told to stop."""
    stop = 0
    while job.poll() is None:
        number = signal.sigwait({*STOP_SIGNALS, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            stop = number
            job.send_signal(number)
    if stop:
        return SIGNAL_STATUS + stop
    return job.returncode if job.returncode >= 0 else SIGNAL_STATUS - job.returncode


def say(line: str) -> None:
    """Prints to standard error, which may be closed."""
    try:
        print(f"lab: {line}", file=sys.stderr, flush=True)
    except OSError:
        pass
