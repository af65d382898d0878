# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that one launcher has started, and the order in which they end.

A launcher reports the rank that ends first. That is to be the one that has failed, not one that has
learned of it and ends as well, which may take less time.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import struct
import time
import uuid
from typing import Callable, Dict, Iterable

from .._communicator import Communicator

# A process that has failed takes less than this to end, also on a busy machine.
_END_SECONDS = 5.0
# torchrun looks for ended processes ten times a second, and that of PyTorch 1 once in 5 s.
_LOOK_SECONDS = 6.0
# A launcher that has seen one end needs less than this to end the others.
_REACTION_SECONDS = 1.0
_SLICE_SECONDS = 0.02
# The digest of what names a parent, and a process of it.
_PROCESS = struct.Struct("<32sq")


def find(communicator: Communicator) -> Dict[int, int]:
    """The processes of other ranks that have this one's parent, by rank. Collective."""
    own = (hashlib.sha256(_parent().encode()).digest(), os.getpid())
    processes = bytearray(_PROCESS.size * communicator.size)
    communicator.all_gather(bytearray(_PROCESS.pack(*own)), out=processes)
    return {
        rank: pid
        for rank, (parent, pid) in enumerate(_PROCESS.iter_unpack(processes))
        if parent == own[0] and pid != own[1]
    }


def _parent() -> str:
    """Names the process that has started this one, unlike all others of all hosts."""
    proc = pathlib.Path("/proc")
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(proc / 'self/ns/pid')} {os.getppid()}"
    except OSError:
        return f"that of {uuid.uuid4()} only"


def end_after(processes: Iterable[int]) -> None:
    """Returns once the launcher of these processes has seen one of them end, and had the time to end
    this one. With no process, or one that does not end, it returns after a while."""
    pids = list(processes)
    if pids and _await(lambda: any(_state(pid) in ("", "Z", "X") for pid in pids), _END_SECONDS):
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _await(lambda: any(_state(pid) == "" for pid in pids), _LOOK_SECONDS)
    time.sleep(_REACTION_SECONDS)


def _await(is_so: Callable[[], bool], seconds: float) -> bool:
    """Tells if it has come true in time."""
    end = time.monotonic() + seconds
    while not (came := is_so()) and time.monotonic() < end:
        time.sleep(_SLICE_SECONDS)
    return came


def _state(pid: int) -> str:
    """The letter of a process's state: Z has ended, but its parent has not asked for its status; empty:
    it has."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]
