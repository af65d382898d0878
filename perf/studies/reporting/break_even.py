# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""From which size on one bit beats full precision: pure arithmetic over measured points."""

import dataclasses
import enum
import math


class Outcome(enum.Enum):
    """What the points say. Only what holds up to the largest size is a break-even."""

    ALWAYS = "faster at every size"
    FROM = "faster from a size on"
    NEVER = "slower at the largest size"
    UNKNOWN = "nothing to compare"


@dataclasses.dataclass(frozen=True)
class Point:
    """Times of both at one size."""

    size: int
    one_bit_us: float
    dense_us: float

    @property
    def is_win(self) -> bool:
        return self.one_bit_us < self.dense_us


@dataclasses.dataclass(frozen=True)
class BreakEven:
    """`first_win`: smallest measured size from which one bit wins at all sizes. `last_loss`: the
    measured size before it. `size`: where the lines between these two cross."""

    outcome: Outcome
    size: float | None = None
    first_win: int | None = None
    last_loss: int | None = None
    smallest: int | None = None
    largest: int | None = None
    wins_below: tuple[int, ...] = ()  # sizes of wins that a loss at a larger size follows


def crossing(loss: Point, win: Point) -> float:
    """Size at which the lines of both systems cross, on the logarithmic axes of the charts."""
    before = math.log(loss.one_bit_us / loss.dense_us)
    after = math.log(win.one_bit_us / win.dense_us)
    part = before / (before - after)
    return math.exp(math.log(loss.size) + part * math.log(win.size / loss.size))


def break_even(points: list[Point]) -> BreakEven:
    """Of points in any order."""
    if not points:
        return BreakEven(Outcome.UNKNOWN)
    points = sorted(points, key=lambda point: point.size)
    losses = [index for index, point in enumerate(points) if not point.is_win]
    smallest, largest = points[0].size, points[-1].size
    if not losses:
        return BreakEven(Outcome.ALWAYS, None, smallest, None, smallest, largest)
    last = losses[-1]
    wins_below = tuple(point.size for point in points[:last] if point.is_win)
    if last == len(points) - 1:
        return BreakEven(Outcome.NEVER, None, None, largest, smallest, largest, wins_below)
    return BreakEven(Outcome.FROM, crossing(points[last], points[last + 1]), points[last + 1].size,
                     points[last].size, smallest, largest, wins_below)
