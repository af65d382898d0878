# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The charts of a study, as pictures that stand alone."""

from __future__ import annotations

import math

from convergence.convergence_results import Study
from reporting.axes import Axis, LogAxis, Tick, size_ticks
from reporting.line_chart import HEIGHT, WIDTH, Line, LineChart, Mark, marker_shape
from reporting.markup import Markup, tag
from reporting.units import size_text

LEGEND_ROW, LEGEND_COLUMN = 18, 140
MOST_LOSS = 3.2  # nats per byte; what is above is the same for all
# Marker and colour of each optimizer. Colours and shapes as in perf/reporting/style.css, where light and
# dark surroundings have their own; a picture has a white ground everywhere.
STYLES = {"adam": ("circle", "#6b7077"), "onebit-adam": ("square", "#c24a00"),
          "zero-one-adam": ("triangle", "#0066a8"), "lamb": ("hollow-circle", "#00805e"),
          "onebit-lamb": ("diamond", "#b9568f")}
STYLE = """
text { font: 11.5px system-ui, "DejaVu Sans", sans-serif; fill: #1c1e21; }
.grid line { stroke: #d9dce0; } .frame { fill: none; stroke: #55595f; }
.line { fill: none; stroke-width: 1.6; } .line .marker { stroke-width: 0.35; }
.line .marker.hollow { fill: #fff; stroke-width: 0.45; } .line .hover { fill: transparent; stroke: none; }
"""


class LinearAxis:
    """From the first tick to the last."""

    MOST_TICKS = 7

    def __init__(self, label: str, values: list[float]) -> None:
        self.label = label
        low, high = min(values), max(values)
        least_step = max(high - low, 1e-9) / self.MOST_TICKS
        power = 10.0 ** math.floor(math.log10(least_step))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_step)
        first, last = math.floor(low / step), math.ceil(high / step)
        last = max(last, first + 1)
        decimals = max(0, -math.floor(math.log10(step)))
        self.ticks = [Tick(index * step, f"{index * step:.{decimals}f}") for index in range(first, last + 1)]
        self._low, self._span = first * step, (last - first) * step

    def part(self, value: float) -> float:
        return (value - self._low) / self._span


def _lines(study: Study, x_of: str) -> list[Line]:
    lines = []
    for optimizer in study.optimizers:
        marks = [Mark(one[x_of], one["heldout_loss"],
                      f"{optimizer}, step {one['step']}, {size_text(one['bytes_sent'])}: "
                      f"{one['heldout_loss']:.3f}")
                 for one in study.curve(optimizer) if one["heldout_loss"] <= MOST_LOSS]
        lines.append(Line(f"s-{optimizer}", STYLES[optimizer][0], [marks]))
    return lines


def _values(lines: list[Line], of: str) -> list[float]:
    return [getattr(mark, of) for line in lines for run in line.runs for mark in run] or [1.0]


def _legend(study: Study) -> Markup:
    entries = []
    for index, optimizer in enumerate(study.optimizers):
        x, y = 20 + index % 3 * LEGEND_COLUMN, 4 + index // 3 * LEGEND_ROW
        sample = tag("g", tag("polyline", points=f"{x},{y + 8} {x + 24},{y + 8}"),
                     marker_shape(STYLES[optimizer][0], x + 12.0, y + 8.0), class_=f"line s-{optimizer}")
        entries += [sample, tag("text", optimizer, x=x + 30, y=y + 12)]
    return tag("g", *entries)


def _picture(study: Study, chart: LineChart) -> str:
    legend_height = 8 + math.ceil(len(study.optimizers) / 3) * LEGEND_ROW
    height = legend_height + HEIGHT
    colours = "".join(f".s-{name} {{ stroke: {colour}; }} .s-{name} .marker {{ fill: {colour}; }}\n"
                      for name, (_, colour) in STYLES.items() if name in study.optimizers)
    # Each picture carries the licence, as other files do.
    licence = "<!-- SPDX-FileCopyrightText: The onebit authors\n     SPDX-License-Identifier: Apache-2.0 -->\n"
    return licence + tag(
        "svg", tag("style", Markup(colours + STYLE)),
        tag("rect", width=WIDTH, height=height, fill="#fff"), _legend(study),
        tag("svg", chart.svg(), y=legend_height, width=WIDTH, height=HEIGHT),
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", width=2 * WIDTH,
        height=2 * height) + "\n"


def _chart(study: Study, identity: str, title: str, x: Axis, lines: list[Line]) -> str:
    loss = LinearAxis("held-out loss, nats per byte", _values(lines, "y"))
    seeds = f"mean over {len(study.seeds)} seeds"
    return _picture(study, LineChart(identity, title, f"{title}, one line for each optimizer, {seeds}.", x,
                                     loss, lines))


def loss_against_steps(study: Study) -> str:
    lines = _lines(study, "step")
    return _chart(study, "loss-steps", "Held-out loss against steps",
                  LinearAxis("step", [0.0, *_values(lines, "x")]), lines)


def loss_against_bytes(study: Study) -> str:
    lines = _lines(study, "bytes_sent")
    return _chart(study, "loss-bytes", "Held-out loss against bytes sent by a rank",
                  LogAxis("sent by a rank", _values(lines, "x"), size_ticks), lines)
