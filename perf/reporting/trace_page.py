# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page and the tables of a trace."""

from reporting.fields import Malformed
from reporting.markdown import table as markdown_table
from reporting.markup import Markup, joined, tag
from reporting.page import document, paragraph
from reporting.trace_chart import TraceChart, legend
from reporting.trace_file import Trace
from reporting.trace_summary import RankSummary, last_calls, summaries_of, window_of
from reporting.units import NO_FIGURE, ms_text, share_text

TITLE = "Calls of onebit over time"
KINDS = ("compress", "reduce", "decode")
CALLS_SHOWN = 3
MOST_SPANS = 20_000  # more make a page that browsers scroll slowly

READING = ("A rank's first line is the thread that makes its calls, with what it computes and what it waits for. "
           "The others are its exchanges, from the first message that sets out or arrives to the last one that "
           "is done, with each message below, and its compute threads. Point at a span to read more.")


def rows_of(summaries: list[RankSummary]) -> tuple[list[str], list[list[str]]]:
    """One table for both forms."""
    peers = sorted({peer for summary in summaries for peer in summary.by_peer})
    is_one = len({summary.communicator for summary in summaries}) == 1
    head = ["rank", "calls", "time in calls", *KINDS, "waiting", *(f"for rank {peer}" for peer in peers)]
    rows = []
    for summary in summaries:
        def cell(time: float | None, whole: float = summary.total) -> str:
            return NO_FIGURE if not time else f"{ms_text(time)} ({share_text(time / whole)})"
        name = str(summary.rank) if is_one else f"{summary.rank} ({summary.communicator})"
        calls = f"{summary.calls}, {summary.failed} failed" if summary.failed else str(summary.calls)
        rows.append([name, calls, ms_text(summary.total), *(cell(summary.by_kind.get(kind)) for kind in KINDS),
                     cell(summary.waiting), *(cell(summary.by_peer.get(peer)) for peer in peers)])
    return head, rows


CAPTION = "Milliseconds of the thread that makes the calls, and their share of the time in calls."


def markdown(trace: Trace) -> str:
    head, rows = rows_of(summaries_of(trace))
    notes = "".join(f"* {note}\n" for note in trace.notes)
    lines = "".join(f"{line}\n" for line in markdown_table([head, *rows], text_columns=2))
    return f"{CAPTION}\n\n{lines}" + (f"\n{notes}" if notes else "")


def summary_table(summaries: list[RankSummary]) -> Markup:
    head, rows = rows_of(summaries)
    return tag("table", tag("caption", CAPTION), tag("thead", tag("tr", *(tag("th", text) for text in head))),
               tag("tbody", *(tag("tr", tag("th", row[0]), *(tag("td", text) for text in row[1:]))
                              for row in rows)))


def page(trace: Trace, calls: tuple[int, int] | None) -> str:
    """The whole file. `calls`: numbers of the first and the last to be drawn; None: the last ones."""
    shown = calls or last_calls(trace, CALLS_SHOWN)
    window = shown and window_of(trace, shown)
    if not shown or not window:
        raise Malformed("the trace has no call " + (f"from {calls[0]} to {calls[1]}" if calls else
                                                    "that all its ranks have made"))
    chart = TraceChart(trace.rows, *window)
    if chart.span_count() > MOST_SPANS:
        raise Malformed(f"calls {shown[0]} to {shown[1]} have {chart.span_count()} spans, and at most "
                        f"{MOST_SPANS} are drawn: give fewer with --calls FIRST:LAST")
    notes = tag("ul", *(tag("li", note) for note in trace.notes), class_="problems") if trace.notes else joined()
    what = f"Call {shown[0]}" if shown[0] == shown[1] else f"Calls {shown[0]} to {shown[1]}"
    body = joined(tag("header", tag("h1", TITLE), paragraph(READING)), notes,
                  tag("main", tag("section", tag("h2", what), legend(), tag("div", chart.svg(), class_="wide")),
                      tag("section", tag("h2", "All calls of the trace"),
                          tag("div", summary_table(summaries_of(trace)), class_="wide"))))
    return document(TITLE, body)
