# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What holds for every file of ONEBIT_TRACE (docs/trace.md), whatever was recorded."""

import bisect
import collections
import json
import pathlib

CALL, COMPUTE, WAIT, EXCHANGE, MESSAGE, ENQUEUE = "call", "compute", "wait", "exchange", "message", "enqueue"
CATEGORIES = {CALL, COMPUTE, WAIT, EXCHANGE, MESSAGE, ENQUEUE}


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


class Span:
    """One event with its row. Times are nanoseconds."""

    def __init__(self, row: dict, event: dict, begin: int, end: int) -> None:
        self.rank, self.communicator, self.row = row["rank"], row["communicator"], row["row"]
        self.name, self.category, self.args = event["name"], event["cat"], event["args"]
        self.call, self.peer = self.args["call"], self.args.get("peer")
        self.begin, self.end = begin, end

    def lies_in(self, other: "Span") -> bool:
        return other.begin <= self.begin and self.end <= other.end

    def __repr__(self) -> str:
        return f"{self.name} on rank {self.rank}, {self.row}: {self.begin} to {self.end}, {self.args}"


def read(path: pathlib.Path) -> list[Span]:
    """The spans of a complete file."""
    events = json.loads(path.read_text())
    rows, begun, spans = {}, {}, []
    for event in events:
        place = event["pid"], event.get("tid")
        assert 0 not in place, event  # Perfetto takes them for what idles
        match event["ph"]:
            case "M":
                if event["name"] == "thread_name":
                    assert place not in rows, event
                    rows[place] = event["args"]
            case "X":
                begin = nanoseconds(event["ts"])
                assert event["dur"] >= 0, event
                spans.append(Span(rows[place], event, begin, begin + nanoseconds(event["dur"])))
            case "b":
                assert begun.setdefault(event["id2"]["local"], event) is event, event
            case "e":
                first = begun.pop(event["id2"]["local"])
                assert (first["name"], first["cat"], first["tid"]) == (event["name"], event["cat"], event["tid"])
                spans.append(Span(rows[place], first, nanoseconds(first["ts"]), nanoseconds(event["ts"])))
            case phase:
                raise AssertionError(f"an event of phase {phase}: {event}")
    assert not begun, begun
    return spans


def check_nesting(spans: list[Span]) -> None:
    """On a row, of two spans one contains the other or they do not meet."""
    open_spans: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.begin, -one.end)):
        while open_spans and open_spans[-1].end <= span.begin:
            open_spans.pop()
        assert not open_spans or span.end <= open_spans[-1].end, (open_spans[-1], span)
        open_spans.append(span)


class Parts:
    """Spans of one row, which follow each other."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = sorted(spans, key=lambda span: span.begin)
        self._begins = [span.begin for span in self._spans]

    def around(self, span: Span) -> Span:
        index = bisect.bisect_right(self._begins, span.begin)
        assert index > 0 and span.lies_in(self._spans[index - 1]), (span, self._spans[max(index - 1, 0)])
        return self._spans[index - 1]


def check_order_of_messages(spans: list[Span]) -> None:
    """No message arrives before it is sent. All ranks are on this host, so they have one clock."""
    sent = {}
    for span in spans:
        if span.name == "send":
            key = message_key(span, span.rank, span.peer)
            sent[key] = min(span.begin, sent.get(key, span.begin))
    for span in spans:
        key = message_key(span, span.peer, span.rank)
        if span.name == "receive" and key in sent:
            assert sent[key] <= span.begin, (span, sent[key])


def message_key(span: Span, sender: int | None, receiver: int | None) -> tuple[object, ...]:
    return span.communicator, span.call, span.args["exchange"], span.args["segment"], sender, receiver


def check(spans: list[Span]) -> None:
    check_order_of_messages([span for span in spans if span.category == MESSAGE])
    rows = collections.defaultdict(list)
    calls, exchanges = collections.defaultdict(list), collections.defaultdict(list)
    for span in spans:
        rank = span.communicator, span.rank
        assert span.category in CATEGORIES, span
        assert span.begin <= span.end, span
        assert span.args["collective"] and span.args["codec"], span
        if span.category != MESSAGE:
            rows[*rank, span.row].append(span)
        if span.category == CALL:
            assert span.row == "calls", span
            calls[rank].append(span)
        if span.category == EXCHANGE:
            exchanges[*rank, span.row].append(span)
    for row in rows.values():
        check_nesting(row)
    calls = {rank: Parts(spans_of_rank) for rank, spans_of_rank in calls.items()}
    exchanges = {row: Parts(spans_of_row) for row, spans_of_row in exchanges.items()}
    for span in spans:
        if span.category in (CALL, ENQUEUE):
            continue
        call = calls[span.communicator, span.rank].around(span)
        # Each send and receive of a group has a number of its own.
        assert span.call == call.call or call.args["collective"] == "send/recv", (span, call)
        if span.category == MESSAGE:
            assert span.name in ("send", "receive"), span
            assert span.peer != span.rank, span
            assert {"bytes", "exchange", "segment"} <= set(span.args), span
            exchange = exchanges[span.communicator, span.rank, span.row].around(span)
            assert exchange.args["exchange"] == span.args["exchange"], (span, exchange)
