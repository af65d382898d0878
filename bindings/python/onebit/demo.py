# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Shows what compression sends and loses: python -m onebit.demo

Starts some processes on this host, which average a tensor several times: in full precision, with 4
bits and with 1 bit per element. Needs nothing but this package.
"""

from __future__ import annotations

import argparse
import array
import math
import operator
import random
from typing import Dict, List, Optional, Sequence, Tuple

import onebit
from onebit._job import run_processes

WAYS = ("dense", "fp4", "sign")

#: For each way the bytes that a rank sends per call, and the errors after 1, 2, ... calls.
Outcome = Dict[str, Tuple[int, List[float]]]


def norm(values: Sequence[float]) -> float:
    return math.sqrt(sum(map(operator.mul, values, values)))


def average(comm: onebit.Communicator, count: int, calls: int) -> Outcome:
    """Averages a gradient of normal values, which stays the same, by each way."""
    draw = random.Random(comm.rank)
    gradient = array.array("f", (draw.gauss(0, 1) for _ in range(count)))
    exact = gradient[:]
    comm.all_reduce(exact, op="avg")
    outcome: Outcome = {}
    for way in WAYS:
        compressor = None if way == "dense" else onebit.Compressor(comm, count, codec=way)
        before = comm.stats().bytes_sent
        total = array.array("d", bytes(8 * count))
        errors = []
        for call in range(1, calls + 1):
            result = gradient[:]
            comm.all_reduce(result, op="avg", compressor=compressor)
            total = array.array("d", map(operator.add, total, result))
            owed = [sum_ / call - value for sum_, value in zip(total, exact)]
            errors.append(norm(owed) / norm(exact))
        outcome[way] = ((comm.stats().bytes_sent - before) // calls, errors)
        if compressor is not None:
            compressor.close()
    return outcome


def report(outcome: Outcome, ranks: int, count: int, calls: int) -> str:
    dense_bytes, _ = outcome["dense"]
    lines = [
        f"{ranks} processes average {count} floats, {calls} times.",
        "",
        f"{'':6} {'sent per rank':>14} {'less by':>8} {'error of 1 call':>16} "
        f"{f'of {calls} together':>16}",
    ]
    for way, (sent, errors) in outcome.items():
        lines.append(
            f"{way:6} {sent:>8} bytes {dense_bytes / sent:>7.1f}x {errors[0]:>16.2%} {errors[-1]:>16.2%}"
        )
    lines += [
        "",
        "The error is that of the mean of all results so far, relative to the exact mean. It shrinks",
        "because what a call loses is sent with later calls (error feedback). The network decides whether",
        "fewer bytes take less time: python -m onebit.doctor measures it.",
    ]
    return "\n".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m onebit.demo", description=__doc__.split("\n\n")[1]
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="processes to start (4)")
    parser.add_argument(
        "--elements", type=int, default=1 << 15, help="floats of the tensor (32768)"
    )
    parser.add_argument("--calls", type=int, default=10, help="number of averages (10)")
    given = parser.parse_args(arguments)
    if min(given.ranks, given.elements, given.calls) < 1:
        parser.error("all numbers must be at least 1")
    outcome, *_ = run_processes(given.ranks, average, given.elements, given.calls)
    print(report(outcome, given.ranks, given.elements, given.calls))


if __name__ == "__main__":
    main()
