# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Draws lines over two axes as SVG. It knows nothing of what they mean.

Colours come from the page's style sheet through classes, so that they follow the reader's theme.
"""

import dataclasses

from reporting.axes import Axis
from reporting.markup import Markup, joined, tag

WIDTH, HEIGHT = 440, 304
LEFT, RIGHT, TOP, BOTTOM = 62, 30, 38, 50
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
MARKER = 4.0  # half of its size
HOVER = 9.0  # radius around a point that shows its text
CHARACTER_WIDTH = 6.6  # of a note, at most


@dataclasses.dataclass(frozen=True)
class Mark:
    """A point and what to say of it. `least` and `most` are the ends of its range."""

    x: float
    y: float
    text: str
    least: float | None = None
    most: float | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """Points from left to right, in runs: where one ends and the next begins something is missing."""

    css_class: str
    marker: str  # "" for a line without points
    runs: list[list[Mark]]


@dataclasses.dataclass(frozen=True)
class Note:
    """A text above the plot, with a line down at `x` if there is one."""

    text: str
    x: float | None = None


@dataclasses.dataclass(frozen=True)
class LineChart:
    """`identity` is unique in the page. Later lines are drawn above earlier ones."""

    identity: str
    title: str
    description: str
    x: Axis
    y: Axis
    lines: list[Line]
    note: Note | None = None

    def svg(self) -> Markup:
        names = f"{self.identity}-title {self.identity}-desc"
        return tag(
            "svg", tag("title", self.title, id=f"{self.identity}-title"),
            tag("desc", self.description, id=f"{self.identity}-desc"),
            self._grid(), self._note(), *(self._line(line) for line in self.lines),
            class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_labelledby=names)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return LEFT + self.x.part(x) * PLOT_WIDTH, TOP + (1 - self.y.part(y)) * PLOT_HEIGHT

    def _grid(self) -> Markup:
        bottom, right = TOP + PLOT_HEIGHT, LEFT + PLOT_WIDTH
        parts = []
        for tick in self.x.ticks:
            x = LEFT + self.x.part(tick.value) * PLOT_WIDTH
            parts.append(tag("line", x1=x, x2=x, y1=TOP, y2=bottom))
            parts.append(tag("text", tick.text, x=x, y=bottom + 19, text_anchor="middle"))
        for tick in self.y.ticks:
            y = TOP + (1 - self.y.part(tick.value)) * PLOT_HEIGHT
            parts.append(tag("line", x1=LEFT, x2=right, y1=y, y2=y))
            parts.append(tag("text", tick.text, x=LEFT - 6, y=y + 4, text_anchor="end"))
        return tag(
            "g", *parts,
            tag("rect", x=LEFT, y=TOP, width=PLOT_WIDTH, height=PLOT_HEIGHT, class_="frame"),
            tag("text", self.y.label, x=4, y=12, class_="axis"),
            tag("text", self.x.label, x=LEFT + PLOT_WIDTH / 2, y=HEIGHT - 8, text_anchor="middle",
                class_="axis"),
            class_="grid")

    def _note(self) -> Markup:
        if self.note is None:
            return joined()
        right = LEFT + PLOT_WIDTH
        line = joined()
        x = right
        if self.note.x is not None:
            x = LEFT + self.x.part(self.note.x) * PLOT_WIDTH
            line = tag("line", x1=x, x2=x, y1=TOP - 4, y2=TOP + PLOT_HEIGHT)
        half = len(self.note.text) * CHARACTER_WIDTH / 2
        centre = max(LEFT + half, min(WIDTH - 2 - half, x))
        return tag("g", line, tag("text", self.note.text, x=centre, y=TOP - 8, text_anchor="middle"),
                   class_="note")

    def _line(self, line: Line) -> Markup:
        parts = []
        for run in line.runs:
            if len(run) > 1:
                points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._at(m.x, m.y) for m in run))
                parts.append(tag("polyline", points=points))
        for mark in (mark for run in line.runs for mark in run):
            if line.marker:
                parts.append(self._mark(line.marker, mark))
        return tag("g", *parts, class_=f"line {line.css_class}")

    def _mark(self, marker: str, mark: Mark) -> Markup:
        x, y = self._at(mark.x, mark.y)
        parts = []
        if mark.least is not None and mark.most is not None and mark.least < mark.most:
            parts.append(tag("line", class_="range", x1=x, x2=x, y1=self._at(mark.x, mark.least)[1],
                             y2=self._at(mark.x, mark.most)[1]))
        parts.append(marker_shape(marker, x, y))
        parts.append(tag("circle", class_="hover", cx=x, cy=y, r=HOVER))
        return tag("g", tag("title", mark.text), *parts)


# Outlines around the origin, in units of MARKER.
SHAPES = {
    "circle": "M-0.95,0 A0.95,0.95 0 1 0 0.95,0 A0.95,0.95 0 1 0 -0.95,0 Z",
    "triangle": "M0,-1.15 L1.1,0.9 L-1.1,0.9 Z",
    "square": "M-0.9,-0.9 H0.9 V0.9 H-0.9 Z",
    "diamond": "M0,-1.35 L1.35,0 L0,1.35 L-1.35,0 Z",
    "cross": "M-0.9,-0.9 L0.9,0.9 M-0.9,0.9 L0.9,-0.9",
}


def marker_shape(marker: str, x: float, y: float) -> Markup:
    """One of SHAPES; "hollow-" before its name leaves it empty."""
    return tag("path", d=SHAPES[marker.removeprefix("hollow-")],
               transform=f"translate({x:.1f} {y:.1f}) scale({MARKER:g})",
               class_="marker hollow" if marker.startswith("hollow-") else "marker")
