# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the times of several machines on one clock, by the messages between them or else their wall clocks."""

import collections
import dataclasses
import math

from reporting.trace_row import Row, Span

Pair = tuple[str, str]  # machines: of the sender and of the receiver


@dataclasses.dataclass
class Machine:
    """`wall`: the wall clock minus the clock of the spans, in microseconds."""

    boot: str
    wall: float
    rows: list[Row] = dataclasses.field(default_factory=list)


def message_key(row: Row, message: Span) -> tuple[object, ...]:
    """The same at both ends of a message."""
    ends = (row.rank, message.peer) if message.name == "send" else (message.peer, row.rank)
    return row.communicator, message.call, message.args.get("exchange"), message.args.get("segment"), *ends


def least_delays(machines: list[Machine]) -> dict[Pair, float]:
    """From one machine's clock to another's, of the message that seems to have been the fastest."""
    sent: dict[tuple[object, ...], tuple[str, float]] = {}
    for machine in machines:
        for row in machine.rows:
            for message in row.messages:
                if message.name == "send":
                    sent.setdefault(message_key(row, message), (machine.boot, message.begin))
    delays: dict[Pair, float] = collections.defaultdict(lambda: math.inf)
    for machine in machines:
        for row in machine.rows:
            for message in row.messages:
                if message.name == "receive" and (found := sent.get(message_key(row, message))):
                    pair = found[0], machine.boot
                    delays[pair] = min(delays[pair], message.begin - found[1])
    return delays


def shifts_of(machines: list[Machine]) -> tuple[dict[str, float], float | None]:
    """Returns the time to add to those of each machine, and by how much the result may be wrong: None, if wall
    clocks had to serve. The result is exact if messages take as long there as back."""
    delays = least_delays(machines)
    shifts, error = {machines[0].boot: 0.0}, 0.0
    while True:
        links = [(delays[known, one.boot] + delays[one.boot, known], known, one.boot)
                 for known in shifts for one in machines if one.boot not in shifts]
        round_trip, known, boot = min(links, default=(math.inf, "", ""))
        if math.isinf(round_trip):
            break
        shifts[boot] = shifts[known] - (delays[known, boot] - delays[boot, known]) / 2
        error += abs(round_trip) / 2  # negative if the clocks drifted
    rest = [one for one in machines if one.boot not in shifts]
    shifts |= {one.boot: one.wall - machines[0].wall for one in rest}
    return shifts, None if rest else error


def shifted(span: Span, microseconds: float) -> Span:
    return dataclasses.replace(span, begin=span.begin + microseconds, end=span.end + microseconds)


def align(machines: list[Machine]) -> float | None:
    """Shifts the spans of all machines but the first. Returns the error, as shifts_of does."""
    shifts, error = shifts_of(machines)
    for machine in machines[1:]:
        for row in machine.rows:
            row.spans = [shifted(span, shifts[machine.boot]) for span in row.spans]
            row.messages = [shifted(span, shifts[machine.boot]) for span in row.messages]
    return error
