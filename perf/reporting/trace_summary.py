# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sums up the steps that the calls of a trace spent their time on, and the peers that they waited for."""

import bisect
import collections
import dataclasses

from reporting.trace_file import Trace
from reporting.trace_row import CALLS, Row, Span

WAIT, COMPUTE, CALL = "wait", "compute", "call"
STEPS = ("compress", "reduce", "decode")

Numbers = tuple[int, int]  # of the first call and the last


def kind_of(span: Span) -> str:
    """Such as "allreduce, sign, ef"."""
    return ", ".join(str(span.args[key]) for key in ("collective", "codec", "mode") if key in span.args)


@dataclasses.dataclass(frozen=True)
class Summary:
    """The calls of one kind on one rank. Times are microseconds, of the thread that makes the calls."""

    kind: str
    rank: int
    communicator: str
    calls: int
    failed: int
    total: float
    by_step: dict[str, float]  # of STEPS
    by_peer: dict[int, float]  # waiting for it
    waiting: float

    @property
    def other(self) -> float:
        """Moving messages, smaller steps, and the time in which the thread had no core."""
        return self.total - self.waiting - sum(self.by_step.values())


def parts_of(row: Row, calls: list[Span]) -> dict[str, list[Span]]:
    """The spans within calls, by the kind of the call. A call of a group has a kind of its own."""
    begins = [call.begin for call in calls]
    parts: dict[str, list[Span]] = collections.defaultdict(list)
    for span in row.spans:
        index = bisect.bisect_right(begins, span.begin) - 1
        if span.category != CALL and index >= 0 and span.end <= calls[index].end:
            parts[kind_of(calls[index])].append(span)
    return parts


def summaries_of_row(row: Row, shown: Numbers | None) -> list[Summary]:
    spans = row.spans if shown is None else numbered(row, shown)
    calls = sorted((span for span in spans if span.category == CALL), key=lambda span: span.begin)
    parts = parts_of(row, calls)
    summaries = []
    for kind in dict.fromkeys(map(kind_of, calls)):
        by_step: collections.Counter[str] = collections.Counter()
        by_peer: collections.Counter[int] = collections.Counter()
        for span in parts[kind]:
            if span.category == COMPUTE and span.name in STEPS:
                by_step[span.name] += span.duration
            elif span.category == WAIT and span.peer is not None:
                by_peer[span.peer] += span.duration
        mine = [call for call in calls if kind_of(call) == kind]
        summaries.append(Summary(kind, row.rank, row.communicator, len(mine), sum(call.failed for call in mine),
                                 sum(call.duration for call in mine), dict(by_step), dict(by_peer),
                                 sum(span.duration for span in parts[kind] if span.category == WAIT)))
    return summaries


def summaries_of(trace: Trace, shown: Numbers | None = None) -> list[Summary]:
    """All calls, or those that are shown: kind by kind, first the one that takes the most time, and rank by
    rank."""
    rows = trace.rows if shown is None else main_rows(trace)
    summaries = [summary for row in rows if row.name == CALLS for summary in summaries_of_row(row, shown)]
    totals: collections.Counter[str] = collections.Counter()
    for summary in summaries:
        totals[summary.kind] += summary.total
    return sorted(summaries, key=lambda summary: (-totals[summary.kind], summary.kind))


def numbered(row: Row, shown: Numbers | None = None) -> list[Span]:
    """The spans of calls that all ranks make, or of those that are shown. A send and its receive have numbers
    of their own."""
    return [span for span in row.spans if span.args.get("collective") != "send/recv"
            and (shown is None or shown[0] <= span.call <= shown[1])]


def main_rows(trace: Trace) -> list[Row]:
    """Those of the communicator with the most spans. Each communicator numbers its own calls."""
    sizes: collections.Counter[str] = collections.Counter()
    for row in trace.rows:
        sizes[row.communicator] += len(numbered(row))
    return [row for row in trace.rows if sizes.most_common(1)[0][0] == row.communicator]


def last_run(numbers: set[int], count: int) -> Numbers:
    """The last `count` of consecutive numbers, or of fewer where no more follow each other."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    run = max(reversed(runs), key=lambda one: min(len(one), count))
    return run[-count:][0], run[-1]


def last_calls(trace: Trace, count: int) -> Numbers | None:
    """The numbers of the last calls of every rank that follow each other and are of the kind that takes the
    most time: a program may end with barriers. None if there are none."""
    times: collections.Counter[str] = collections.Counter()
    for row in main_rows(trace):
        for span in numbered(row):
            times[kind_of(span)] += span.duration
    ranks: dict[int, set[int]] = collections.defaultdict(set)
    for row in main_rows(trace):
        ranks[row.rank] |= {span.call for span in numbered(row) if kind_of(span) == times.most_common(1)[0][0]}
    common = set.intersection(*ranks.values()) if ranks else set()
    return last_run(common, count) if common else None


def window_of(trace: Trace, shown: Numbers) -> tuple[float, float] | None:
    """From the begin of the first to the end of the last of these calls, on any rank."""
    spans = [span for row in main_rows(trace) for span in numbered(row, shown)]
    return (min(span.begin for span in spans), max(span.end for span in spans)) if spans else None
