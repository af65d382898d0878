# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the calls of a trace spent their time on, and which peers they waited for."""

import collections
import dataclasses

from reporting.trace_file import CALLS, Row, Span, Trace

WAIT, COMPUTE, CALL = "wait", "compute", "call"


@dataclasses.dataclass(frozen=True)
class RankSummary:
    """Times are microseconds, of the thread that makes the calls."""

    rank: int
    communicator: str
    calls: int
    failed: int
    total: float
    by_kind: dict[str, float]  # "compress", ...
    by_peer: dict[int, float]  # waiting for it
    waiting: float


def summary_of(row: Row) -> RankSummary:
    by_kind: collections.Counter[str] = collections.Counter()
    by_peer: collections.Counter[int] = collections.Counter()
    calls = [span for span in row.spans if span.category == CALL]
    for span in row.spans:
        if span.category == COMPUTE:
            by_kind[span.name] += span.duration
        elif span.category == WAIT and span.peer is not None:
            by_peer[span.peer] += span.duration
    waiting = sum(span.duration for span in row.spans if span.category == WAIT)
    return RankSummary(row.rank, row.communicator, len(calls), sum(span.failed for span in calls),
                       sum(span.duration for span in calls), dict(by_kind), dict(by_peer), waiting)


def summaries_of(trace: Trace) -> list[RankSummary]:
    return [summary_of(row) for row in trace.rows if row.name == CALLS]


def numbered(row: Row) -> list[Span]:
    """The spans of calls that all ranks make. A send and its receive have numbers of their own."""
    return [span for span in row.spans if span.args.get("collective") != "send/recv"]


def main_rows(trace: Trace) -> list[Row]:
    """Those of the communicator with the most spans. Each communicator numbers its own calls."""
    sizes: collections.Counter[str] = collections.Counter()
    for row in trace.rows:
        sizes[row.communicator] += len(numbered(row))
    return [row for row in trace.rows if sizes.most_common(1)[0][0] == row.communicator]


def kind_of(span: Span) -> tuple[object, object]:
    return span.args.get("collective"), span.args.get("codec")


def last_calls(trace: Trace, count: int) -> tuple[int, int] | None:
    """The numbers of the last calls of every rank, of the kind that takes the most time: a program may end
    with barriers. None if there are none."""
    times: collections.Counter[tuple[object, object]] = collections.Counter()
    for row in main_rows(trace):
        for span in numbered(row):
            times[kind_of(span)] += span.duration
    ranks: dict[int, set[int]] = collections.defaultdict(set)
    for row in main_rows(trace):
        ranks[row.rank] |= {span.call for span in numbered(row) if kind_of(span) == times.most_common(1)[0][0]}
    common = set.intersection(*ranks.values()) if ranks else set()
    return (max(min(common), max(common) - count + 1), max(common)) if common else None


def window_of(trace: Trace, calls: tuple[int, int]) -> tuple[float, float] | None:
    """From the begin of the first to the end of the last of these calls, on any rank."""
    spans = [span for row in main_rows(trace) for span in numbered(row) if calls[0] <= span.call <= calls[1]]
    return (min(span.begin for span in spans), max(span.end for span in spans)) if spans else None
