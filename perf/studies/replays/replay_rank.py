# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a re-enacted training: sleeps in place of computing, then averages: replay_rank.py PLAN

PLAN is JSON: where rank 0 writes the report, and the stages. A stage repeats one kind of step.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time

import onebit

PATTERN = 1 << 14  # random values; a tensor repeats them
LETTERS = {"float16": "e", "float32": "f"}


class Tensor:
    """Random values, described as NumPy does, because Python's buffers have no float16 before 3.12."""

    def __init__(self, count: int, dtype: str):
        letter = LETTERS[dtype]
        values = struct.pack(f"{PATTERN}{letter}", *(random.gauss(0, 1) for _ in range(PATTERN)))
        size = count * struct.calcsize(letter)
        self._memory = bytearray((values * (size // len(values) + 1))[:size])
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.__array_interface__ = {"shape": (count,), "typestr": f"<f{struct.calcsize(letter)}",
                                    "data": (address, False), "version": 3}


def link_bytes() -> int:
    """Bytes with headers that have left this host; 0 on all of its ranks but the first, so that a sum counts them
    once."""
    if os.environ["LOCAL_RANK"] != "0":
        return 0
    shown = subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", "eth0"], check=True, capture_output=True)
    return next(entry["bytes"] for entry in json.loads(shown.stdout) if entry.get("root"))


def counters(comm: onebit.Communicator) -> list[float]:
    """Bytes on the link, messages and seconds of CPU so far, read while no rank sends anything."""
    comm.barrier()
    now = [link_bytes(), comm.stats().messages_sent, time.process_time()]
    comm.barrier()
    return now


def run_stage(comm: onebit.Communicator, stage: dict) -> list[float]:
    """Returns the median seconds of a step and of its average, and what counters() say of each step."""
    tensor = Tensor(stage["elements"], stage["dtype"])
    compressor = stage["codec"] and onebit.Compressor(comm, stage["elements"], **stage["codec"])
    comm.all_reduce(tensor, op="avg", compressor=compressor)  # the first call allocates
    before = counters(comm)
    steps, calls = [], []
    for _ in range(stage["steps"]):
        begin = time.perf_counter()
        time.sleep(stage["sleep"])
        computed = time.perf_counter()
        comm.all_reduce(tensor, op="avg", compressor=compressor)
        end = time.perf_counter()
        steps.append(end - begin)
        calls.append(end - computed)
    spent = [(now - then) / stage["steps"] for now, then in zip(counters(comm), before)]
    return [statistics.median(steps), statistics.median(calls), *spent]


def main() -> None:
    plan = json.loads(sys.argv[1])
    with onebit.init() as comm:
        report = {}
        for stage in plan["stages"]:
            mine = array.array("d", run_stage(comm, stage))
            ranks = array.array("d", bytes(8 * len(mine) * comm.size))
            comm.all_gather(mine, out=ranks)
            report[stage["name"]] = [list(ranks[rank * len(mine):][:len(mine)]) for rank in range(comm.size)]
        if comm.rank == 0:
            with open(plan["report"], "w", encoding="utf-8") as file:
                json.dump(report, file)


main()
