# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Network namespaces by name, and the processes in them."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import time

from ethernet_lab.errors import LabError, Unavailable

FOLDER = pathlib.Path("/run/netns")  # where ip(8) keeps them
TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux",
         "mount": "mount", "hostname": "hostname"}
SECONDS_TO_DIE = 5


def require_support() -> None:
    """Raises Unavailable if it is clear beforehand that no namespaces can be made."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root: run it as root")
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise Unavailable(f"there is no {tool} here: install {package}")


def call(*command: str) -> str:
    """Runs ip or tc and returns what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise LabError(f"{' '.join(command)}: {reason[-1]}")
    return done.stdout


def add(name: str) -> None:
    try:
        call("ip", "netns", "add", name)
    except LabError as error:
        raise Unavailable(f"no network namespaces here: {error}") from error


def delete(name: str) -> None:
    """Deletes a namespace; it may be gone already."""
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []


def processes_in(namespaces: list[str]) -> list[int]:
    """Processes whose network is one of these, whoever started them."""
    wanted = {identity for name in namespaces if (identity := _identity(FOLDER / name))}
    numbers = (int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit())
    return [pid for pid in numbers if _identity(pathlib.Path(f"/proc/{pid}/ns/net")) in wanted]


def kill_processes_in(namespaces: list[str]) -> None:
    """Kills until no process is left: they may start others meanwhile."""
    deadline = time.monotonic() + SECONDS_TO_DIE
    while pids := processes_in(namespaces):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > deadline:
            return  # a process may be stuck in a system call, as on a dead file system
        time.sleep(0.01)


def _identity(path: pathlib.Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
