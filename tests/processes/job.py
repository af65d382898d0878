# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes, for tests that hurt them."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

# Limits the wait for events that must happen, so only a failing test takes this long.
PATIENCE_SECONDS = 30
# A loss time-out that no test waits for: a rank that learns of a loss earlier did so in another
# way.
NO_SILENCE_SECONDS = 4 * PATIENCE_SECONDS

# Ways between processes of one host, with the settings that choose them.
SOCKET_WAYS = {"shared memory": {}, "tcp": {"ONEBIT_SOCKET_SHARED_MEMORY": "0"}}
UCX_WAYS = {f"ucx, {tls}": {"ONEBIT_TRANSPORT": "ucx", "ONEBIT_UCX_TLS": tls} for tls in ("all", "tcp")}

ENDED = re.compile(r"ended (\d+) ([\d.]+) (.*)")


def paced(seconds: float) -> float:
    """As PacedMs of tests/support/deadlines.h."""
    begin, given_at_begin = time.monotonic(), time.thread_time()
    while (given := time.thread_time() - given_at_begin) < 0.02:
        pass
    return seconds * (1 + 3 * max(0.0, (time.monotonic() - begin) / given - 1))


class Rank:
    """One process and the lines it has printed so far."""

    def __init__(self, command: list[str], environment: dict[str, str], has_input: bool = False):
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                        stdin=subprocess.PIPE if has_input else None,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def exit_status(self) -> int:
        """Waits until the process has ended and its lines are here. Fails with them if it does not end."""
        try:
            status = self.process.wait(paced(2 * PATIENCE_SECONDS))
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"process {self.process.pid} does not end; its lines: {self.lines}") from error
        self._reader.join(PATIENCE_SECONDS)
        return status

    def wait_for_lines(self, prefix: str, count: int, seconds: float) -> list[str]:
        """The first lines that begin so."""
        found: list[str] = []

        def look():
            found[:] = [line for line in self.lines if line.startswith(prefix)][:count]
            return len(found) == count or not self._reader.is_alive()

        with self._changed:
            self._changed.wait_for(look, seconds)
        assert len(found) == count, f"{len(found)} of {count} lines {prefix!r}; there are {self.lines}"
        return found

    def wait_for(self, prefix: str, seconds: float) -> str:
        """The first line that begins so."""
        return self.wait_for_lines(prefix, 1, seconds)[0]

    def ended(self, seconds: float) -> tuple[int, float, str]:
        """Result, monotonic time and text of the end."""
        match = ENDED.match(self.wait_for("ended", seconds))
        return int(match[1]), float(match[2]), match[3]


class Job:
    """A process per command, as ranks that meet at a file; gone when the block is left."""

    def __init__(self, commands: list[list[str]], has_input: bool = False, **variables: str):
        self._folder = tempfile.TemporaryDirectory(prefix="onebit-test-")
        self.rendezvous = pathlib.Path(self._folder.name) / "meet"
        inherited = {name: value for name, value in os.environ.items()
                     if not name.startswith("ONEBIT_") or name == "ONEBIT_PLUGIN_PATH"}
        self.ranks = []
        for rank, command in enumerate(commands):
            environment = inherited | {"RANK": str(rank), "WORLD_SIZE": str(len(commands)),
                                       "ONEBIT_RENDEZVOUS": str(self.rendezvous)} | variables
            self.ranks.append(Rank(command, environment, has_input))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGKILL)
            rank.process.wait()
        self._folder.cleanup()

    def wait_until_ready(self, seconds: float = 20):
        for rank in self.ranks:
            rank.wait_for("ready", seconds)

    def hurt(self, victim: int, how: signal.Signals) -> float:
        """Sends the signal; returns when."""
        now = time.monotonic()
        self.ranks[victim].process.send_signal(how)
        return now


def results_of_threads(program: str, ranks: int, host_ranks: int = 0) -> list[str]:
    """What rank_results prints for threads; with `host_ranks`, so many successive ones form a host."""
    def lines(**variables: str) -> list[str]:
        return subprocess.run([program, str(ranks)], env=os.environ | variables, check=True, capture_output=True,
                              text=True).stdout.splitlines()

    flat = lines()
    if host_ranks == 0:
        return flat
    found = lines(ONEBIT_HOST_RANKS=str(host_ranks))
    assert len(found) == len(flat) and found != flat, "two levels have not changed a sum"
    return found


def left_behind(before: set[str], look) -> set[str]:
    """What `look` finds that was not there before. Other tests use this machine as well: what is theirs goes when
    their jobs end, and ours would stay."""
    left = look() - before
    deadline = time.monotonic() + 100
    while left and time.monotonic() < deadline:
        time.sleep(0.5)
        left &= look()
    return left


def leftovers() -> set[str]:
    """What a job could leave on the machine: listening TCP ports, shared memory, rendezvous files."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # listening
                found.add(f"port {int(fields[1].rsplit(':', 1)[1], 16)}")
    for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        found.add(f"SysV segment {line.split()[1]}")
    for folder in ("/dev/shm", "/tmp"):
        found |= {str(path) for path in pathlib.Path(folder).iterdir()
                  if re.search(r"ucx|onebit", path.name)}
    return found
