# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Supervises the processes of a job until all have ended, by the rules of onebit_run.

After a failure, the others get a grace period to report it in their own words, then SIGTERM, then
SIGKILL. A signal to stop the job is passed on, and the same steps follow. The status is that of the
first process that failed, or 128 + signal if the job was told to stop before. Leftover processes end
with the hosts they are on.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time

from ethernet_lab.errors import SIGNAL_STATUS
from ethernet_lab.namespaces import STOP_SIGNALS

SECONDS_TO_TERMINATE = 2


class SignalGate:
    """Collects signals to be read in order, instead of raising exceptions anywhere, while the lab
    exists."""

    def __init__(self):
        self._read, self._write = socket.socketpair()
        self._former: dict[int, object] = {}

    def __enter__(self) -> SignalGate:
        for end in (self._read, self._write):
            end.setblocking(False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            # Signals that were ignored at our start, as nohup does it, stay ignored.
            if number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN:
                self._former[number] = signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        for end in (self._read, self._write):
            end.close()

    def wait(self, seconds: float | None) -> list[int]:
        """Waits for signals, at most this many seconds, and returns them."""
        select.select([self._read], [], [], seconds)
        try:
            return list(self._read.recv(4096))
        except BlockingIOError:
            return []

    def poke(self, number: int) -> None:
        """Simulates the arrival of a signal. Thread-safe, at any time."""
        try:
            self._write.send(bytes([number]))
        except OSError:
            pass  # the lab is at its end


class Supervisor:
    """Supervisor of one job."""

    def __init__(self, gate: SignalGate, grace_seconds: float):
        self._gate = gate
        self._grace_seconds = grace_seconds
        self._live: dict[str, subprocess.Popen] = {}  # by name
        # The first failure: name, process number, status (negative for a signal).
        self._failure: tuple[str, int, int] | None = None
        self._is_explained = False
        self._stop_signal = 0
        self._has_signalled = False
        self._stages: list[int] = []  # signals still to be sent, when the deadline passes
        self._deadline: float | None = None

    def start(self, name: str, command: list[str], environment: dict[str, str],
              **streams) -> subprocess.Popen:
        """Starts a process as the leader of a group, so that whatever it starts can be signalled."""
        process = subprocess.Popen(command, env=environment, process_group=0, **streams)
        self._live[name] = process
        return process

    def wait(self) -> int:
        """Waits for all; returns the status of the job."""
        self._collect_ended()  # some may have been faster than the start of the others
        while self._live:
            left = None if self._deadline is None else max(0, self._deadline - time.monotonic())
            for number in self._gate.wait(left):
                if number == signal.SIGCHLD:
                    self._collect_ended()
                else:
                    self._stop(number)
            if self._deadline is not None and time.monotonic() >= self._deadline and self._live:
                self._escalate()
        if self._failure is None:
            return SIGNAL_STATUS + self._stop_signal if self._stop_signal else 0
        self._explain()
        status = self._failure[2]
        return status if status >= 0 else SIGNAL_STATUS - status

    def _stop(self, number: int) -> None:
        is_second = self._stop_signal != 0
        self._stop_signal = number
        self._signal_live(number)
        if is_second:  # a second signal means: stop now
            self._escalate()
        else:
            self._begin_ending()

    def _collect_ended(self) -> None:
        for name, process in list(self._live.items()):
            status = process.poll()
            if status is None:
                continue
            del self._live[name]
            if status != 0:
                self._note_failure(name, process.pid, status)

    def _note_failure(self, name: str, pid: int, status: int) -> None:
        if self._failure is None and self._stop_signal == 0:
            self._failure = (name, pid, status)
        elif (not self._has_signalled and self._failure is not None and self._failure[2] > 0
              and status < 0):
            # A rank may exit because a signal has ended another one, and be reaped sooner.
            self._failure = (name, pid, status)
        self._begin_ending()

    def _begin_ending(self) -> None:
        if self._deadline is None:
            self._stages = [signal.SIGTERM, signal.SIGKILL]
            self._deadline = time.monotonic() + self._grace_seconds

    def _escalate(self) -> None:
        self._explain()
        number = self._stages.pop(0) if self._stages else signal.SIGKILL
        say(f"{'terminating' if number == signal.SIGTERM else 'killing'} {', '.join(self._live)}")
        self._signal_live(number)
        self._deadline = time.monotonic() + SECONDS_TO_TERMINATE

    def _signal_live(self, number: int) -> None:
        self._has_signalled = True
        for process in self._live.values():
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass

    def _explain(self) -> None:
        if self._failure is None or self._is_explained:
            return
        self._is_explained = True
        name, pid, status = self._failure
        how = (f"was killed by signal {-status} ({signal.strsignal(-status)})" if status < 0
               else f"ended with status {status}")
        say(f"{name} (pid {pid}) {how}")


def say(line: str) -> None:
    """Prints to standard error, which may be closed."""
    try:
        print(f"lab: {line}", file=sys.stderr, flush=True)
    except OSError:
        pass
