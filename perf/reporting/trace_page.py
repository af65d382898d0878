# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page and the tables of a trace."""

from reporting.fields import Malformed
from reporting.markdown import table as markdown_table
from reporting.markup import Markup, joined, tag
from reporting.page import document, paragraph
from reporting.trace_chart import TraceChart, legend
from reporting.trace_file import Trace
from reporting.trace_summary import (STEPS, Numbers, Summary, kind_of, last_calls, main_rows, numbered,
                                     summaries_of, window_of)
from reporting.units import NO_FIGURE, ms_text, share_text

TITLE = "Calls of onebit over time"
CALLS_SHOWN = 3
MOST_SPANS = 20_000  # more make a page that browsers scroll slowly
MOST_PEERS = 3  # in the last column
TEXT_COLUMNS = 2

READING = ("The first line of a rank is the thread that makes its calls: what it computes, and which rank's message "
           "ends each wait. Where a call is blank, its thread moves messages or has no core; between calls the "
           "program does other things. Below are the exchanges, each from the first message that sets out or "
           "arrives to the last one that is done, with a thin line for each message, and the compute threads. Point "
           "at a span to read more.")


def rows_of(summaries: list[Summary]) -> tuple[list[str], list[list[str]]]:
    """One table for both forms."""
    is_one = len({summary.communicator for summary in summaries}) == 1
    head = ["calls", "rank", "number", "time", *STEPS, "other", "waiting", "mostly for"]
    rows = []
    for summary in summaries:
        def cell(time: float | None, whole: float = summary.total) -> str:
            return NO_FIGURE if not time else f"{ms_text(time)} ({share_text(time / whole)})"

        def peer_text(peer: int, whole: float = summary.total, times: dict[int, float] = summary.by_peer) -> str:
            return f"rank {peer} ({share_text(times[peer] / whole)})"
        name = str(summary.rank) if is_one else f"{summary.rank} ({summary.communicator})"
        number = f"{summary.calls}, {summary.failed} failed" if summary.failed else str(summary.calls)
        peers = sorted(summary.by_peer, key=summary.by_peer.__getitem__, reverse=True)[:MOST_PEERS]
        rows.append([summary.kind, name, number, ms_text(summary.total),
                     *(cell(summary.by_step.get(step)) for step in STEPS), cell(summary.other),
                     cell(summary.waiting), ", ".join(map(peer_text, peers)) or NO_FIGURE])
    return head, rows


CAPTION = "Milliseconds of the thread that makes the calls, and their share of the time in calls of that kind."


def markdown(trace: Trace, calls: Numbers | None) -> str:
    head, rows = rows_of(summaries_of(trace, calls))
    notes = "".join(f"* {note}\n" for note in trace.notes)
    lines = "".join(f"{line}\n" for line in markdown_table([head, *rows], text_columns=TEXT_COLUMNS))
    return f"{CAPTION}\n\n{lines}" + (f"\n{notes}" if notes else "")


def summary_table(summaries: list[Summary]) -> Markup:
    head, rows = rows_of(summaries)
    return tag("table", tag("caption", CAPTION), tag("thead", tag("tr", *(tag("th", text) for text in head))),
               tag("tbody", *(tag("tr", *(tag("th", text) for text in row[:TEXT_COLUMNS]),
                                  *(tag("td", text) for text in row[TEXT_COLUMNS:])) for row in rows)))


def title_of(trace: Trace, shown: Numbers) -> str:
    """The calls that are drawn, and their kind if it is one."""
    kinds = {kind_of(span) for row in main_rows(trace) for span in numbered(row, shown)}
    what = f"Call {shown[0]}" if shown[0] == shown[1] else f"Calls {shown[0]} to {shown[1]}"
    return f"{what}: {kinds.pop()}" if len(kinds) == 1 else what


def page(trace: Trace, calls: Numbers | None) -> str:
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
    body = joined(tag("header", tag("h1", TITLE), paragraph(READING)), notes,
                  tag("main", tag("section", tag("h2", title_of(trace, shown)), legend(chart.classes()),
                                      tag("div", chart.svg(), class_="wide"),
                                      tag("div", summary_table(summaries_of(trace, shown)), class_="wide")),
                      tag("section", tag("h2", "All calls of the trace"),
                          tag("div", summary_table(summaries_of(trace)), class_="wide"))))
    return document(TITLE, body)
