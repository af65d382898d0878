# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the rows of a trace over time as SVG."""

import dataclasses
import math

from reporting.markup import Markup, joined, tag
from reporting.trace_row import CALLS, Row, Span
from reporting.trace_summary import CALL, kind_of
from reporting.units import size_text, tick_time_text, time_text

WIDTH = 1320
LEFT, RIGHT, TOP, BOTTOM = 150, 10, 8, 30
PLOT = WIDTH - LEFT - RIGHT
NAME_HEIGHT = 14.0  # of the names of calls, above a rank
CALL_HEIGHT, ROW_HEIGHT, MESSAGE_HEIGHT, GAP, RANK_GAP = 26.0, 12.0, 4.0, 3.0, 12.0
MOST_LANES = 8  # of messages in flight; further ones are drawn over each other
CHARACTER_WIDTH = 6.4
LEAST_WIDTH = 0.4  # so that short spans are seen
MOST_TICKS = 12

# The style of a span, by its name, or else its category.
CLASSES = {"compress": "t-compress", "reduce": "t-reduce", "decode": "t-decode", "wait": "t-wait",
           "exchange": "t-exchange", "send": "t-send", "receive": "t-receive", "call": "t-call",
           "enqueue": "t-enqueue", "compute": "t-other"}
LEGEND = (("t-call", "call"), ("t-compress", "compress"), ("t-reduce", "reduce"), ("t-decode", "decode"),
          ("t-other", "other computing"), ("t-wait", "wait, with the rank waited for"),
          ("t-exchange", "exchange"), ("t-send", "message sent"), ("t-receive", "message received"),
          ("t-enqueue", "enqueuing on a stream"))


def class_of(span: Span) -> str:
    return CLASSES.get(span.name) or CLASSES.get(span.category, "t-other")


def text_of(span: Span, origin: float) -> str:
    """Its tooltip."""
    words = [span.name]
    if span.failed:
        words.append("failed")
    args = dict(span.args)
    if "bytes" in args and isinstance(args["bytes"], int):
        args["bytes"] = size_text(args["bytes"])
    words += [f"{key} {value}" for key, value in args.items() if key != "failed"]
    return f"{', '.join(words)}: {time_text(span.duration)} from {time_text(span.begin - origin)} on"


@dataclasses.dataclass(frozen=True)
class Window:
    begin: float
    end: float

    def x(self, time: float) -> float:
        part = (time - self.begin) / max(self.end - self.begin, 1e-9)
        return LEFT + min(max(part, 0.0), 1.0) * PLOT

    def has(self, span: Span) -> bool:
        return span.end >= self.begin and span.begin <= self.end

    def ticks(self) -> list[float]:
        length = self.end - self.begin
        power = 10.0 ** math.floor(math.log10(length / MOST_TICKS))
        step = next(power * factor for factor in (1, 2, 5, 10) if length / (power * factor) <= MOST_TICKS)
        return [index * step for index in range(int(length / step) + 1)]


def lanes_of(messages: list[Span]) -> list[tuple[int, Span]]:
    """Puts each message into the first lane that is free when it begins."""
    ends: list[float] = []
    placed = []
    for span in sorted(messages, key=lambda message: (message.begin, message.end)):
        lane = next((index for index, end in enumerate(ends) if end <= span.begin), len(ends))
        if lane == len(ends):
            ends.append(span.end)
        ends[lane] = span.end
        placed.append((min(lane, MOST_LANES - 1), span))
    return placed


def depths_of(spans: list[Span]) -> list[tuple[int, Span]]:
    """How many spans each lies within."""
    open_ends: list[float] = []
    placed = []
    for span in sorted(spans, key=lambda one: (one.begin, -one.end)):
        while open_ends and open_ends[-1] <= span.begin:
            open_ends.pop()
        placed.append((len(open_ends), span))
        open_ends.append(span.end)
    return placed


class TraceChart:
    """`rows` in the order in which they are drawn."""

    def __init__(self, rows: list[Row], begin: float, end: float) -> None:
        self._window = Window(begin, end)
        self._rows = [(row, spans, messages) for row in rows
                      for spans in [[span for span in row.spans if self._window.has(span)]]
                      for messages in [[span for span in row.messages if self._window.has(span)]]
                      if spans or messages]

    def span_count(self) -> int:
        return sum(len(spans) + len(messages) for _, spans, messages in self._rows)

    def classes(self) -> set[str]:
        """The styles that are drawn."""
        return {class_of(span) for _, spans, messages in self._rows for span in (*spans, *messages)}

    def svg(self) -> Markup:
        y, before, parts = float(TOP), None, []
        for row, spans, messages in self._rows:
            rank = row.communicator, row.rank
            is_first = before != rank
            if is_first and before is not None:
                y += RANK_GAP
            before = rank
            drawn, height = self._row(row, spans, messages, y, is_first)
            parts.append(drawn)
            y += height + GAP
        return tag("svg", tag("title", "Spans of each rank over time"), self._grid(y), *parts,
                   class_="trace", viewBox=f"0 0 {WIDTH} {y + BOTTOM:g}", role="img")

    def _grid(self, bottom: float) -> Markup:
        parts = []
        for value in self._window.ticks():
            x = self._window.x(self._window.begin + value)
            parts.append(tag("line", x1=x, x2=x, y1=float(TOP), y2=bottom))
            parts.append(tag("text", tick_time_text(value) if value else "0", x=x, y=bottom + 16,
                             text_anchor="middle"))
        return tag("g", *parts, class_="grid")

    def _row(self, row: Row, spans: list[Span], messages: list[Span], y: float,
             is_first: bool) -> tuple[Markup, float]:
        names_height = NAME_HEIGHT if row.name == CALLS else 0.0
        y += names_height
        height = CALL_HEIGHT if row.name == CALLS else ROW_HEIGHT if spans else 0.0
        names = [f"rank {row.rank}"] if is_first else []
        if row.name != CALLS:
            names.append(row.name)
        label = tag("text", ": ".join(names), x=LEFT - 8, y=y + max(height, ROW_HEIGHT) / 2 + 4, text_anchor="end",
                    class_="rank" if is_first else None)
        parts = [self._box(span, y + 3.0 * min(depth, 2), max(height - 6.0 * min(depth, 2), 4.0))
                 for depth, span in depths_of(spans)]
        parts += [self._name(span, y - 3) for span in spans if span.category == CALL]
        lanes = lanes_of(messages)
        parts += [self._box(span, y + height + 1 + lane * (MESSAGE_HEIGHT + 1), MESSAGE_HEIGHT)
                  for lane, span in lanes]
        if lanes:
            height += 1 + (max(lane for lane, _ in lanes) + 1) * (MESSAGE_HEIGHT + 1)
        return tag("g", label, *parts), names_height + max(height, ROW_HEIGHT)

    def _name(self, call: Span, y: float) -> Markup:
        """As much of it as there is room for."""
        left, right = self._window.x(call.begin), self._window.x(call.end)
        number = str(call.call)
        for text in (f"{number}: {kind_of(call)}", number):
            if len(text) * CHARACTER_WIDTH <= right - left:
                return tag("text", text, x=left, y=y, class_="call")
        return joined()

    def _box(self, span: Span, y: float, height: float) -> Markup:
        left, right = self._window.x(span.begin), self._window.x(span.end)
        width = max(right - left, LEAST_WIDTH)
        css_class = class_of(span) + (" failed" if span.failed else "")
        box = tag("rect", tag("title", text_of(span, self._window.begin)), x=left, y=y, width=width,
                  height=height, class_=css_class)
        if span.category != "wait" or span.peer is None:
            return box
        text = f"rank {span.peer}"
        if len(text) * CHARACTER_WIDTH > width - 4:
            text = str(span.peer)
        if len(text) * CHARACTER_WIDTH > width - 2:
            return box
        return joined(box, tag("text", text, x=left + width / 2, y=y + height / 2 + 4, text_anchor="middle",
                               class_="peer"))


def legend(classes: set[str]) -> Markup:
    return tag("ul", *(tag("li", tag("svg", tag("rect", x=1, y=1, width=28, height=12, class_=css_class),
                                     viewBox="0 0 30 14", class_="key", aria_hidden="true"), label)
                       for css_class, label in LEGEND if css_class in classes), class_="legend")
