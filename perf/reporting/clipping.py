# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Cuts a line where it leaves a range of heights: pure arithmetic, on logarithmic axes.

Limits of small tensors lie far from anything that was measured. Drawn to their ends they would squeeze
what the chart is about.
"""

import math

Point = tuple[float, float]  # x and y, both above zero


def between(one: Point, other: Point, y: float) -> Point:
    """Where the straight line of both reaches `y`."""
    part = math.log(y / one[1]) / math.log(other[1] / one[1])
    return one[0] * (other[0] / one[0]) ** part, y


def clipped_segment(one: Point, other: Point, low: float, high: float) -> tuple[Point, Point] | None:
    """The part of a segment with low <= y <= high, None if there is none."""
    if max(one[1], other[1]) < low or min(one[1], other[1]) > high:
        return None
    ends = []
    for end in (one, other):
        y = min(max(end[1], low), high)
        ends.append(end if y == end[1] else between(one, other, y))
    return ends[0], ends[1]


def clipped(points: list[Point], low: float, high: float) -> list[list[Point]]:
    """What is left of a line, as lines: it may leave the range and come back."""
    if len(points) == 1:
        return [points] if low <= points[0][1] <= high else []
    lines: list[list[Point]] = []
    for one, other in zip(points, points[1:], strict=False):
        segment = clipped_segment(one, other, low, high)
        if segment is None:
            continue
        if lines and lines[-1][-1] == segment[0]:
            lines[-1].append(segment[1])
        else:
            lines.append(list(segment))
    return lines
