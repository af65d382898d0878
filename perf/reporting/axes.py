# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Axes of charts: from values to positions, and where to put the labels."""

import dataclasses
import math
import typing

from reporting.units import short, size_text, tick_time_text


@dataclasses.dataclass(frozen=True)
class Tick:
    """A line across the chart, and a text beside it unless that is empty."""

    value: float
    text: str


class Axis(typing.Protocol):
    """`part(value)` is the position between both ends, 0 to 1."""

    label: str
    ticks: list[Tick]

    def part(self, value: float) -> float: ...


class LogAxis:
    """From a little below the smallest value to a little above the largest."""

    PADDING = 1.25
    LEAST_SPAN = 4.0  # so that a single value has neighbours to be read against

    def __init__(self, label: str, values: list[float], ticks: "Ticks") -> None:
        self.label = label
        low, high = min(values) / self.PADDING, max(values) * self.PADDING
        if high / low < self.LEAST_SPAN:
            middle = math.sqrt(low * high)
            low, high = middle / math.sqrt(self.LEAST_SPAN), middle * math.sqrt(self.LEAST_SPAN)
        self._log_low, self._log_span = math.log(low), math.log(high / low)
        self.ticks = ticks(low, high)

    def part(self, value: float) -> float:
        return (math.log(value) - self._log_low) / self._log_span


class ShareAxis:
    """From zero to the limit, or as far above it as somebody claims to be."""

    MOST_TICKS = 6

    def __init__(self, label: str, shares: list[float]) -> None:
        self.label = label
        self._high = 1.06 * max([1.0, *shares])
        step = next(step for step in (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.ceil(self._high))
                    if self._high / step < self.MOST_TICKS)
        self.ticks = [Tick(index * step, f"{100 * index * step:.0f} %")
                      for index in range(int(self._high / step) + 1)]

    def part(self, value: float) -> float:
        return value / self._high


Ticks = typing.Callable[[float, float], list[Tick]]


def size_ticks(low: float, high: float) -> list[Tick]:
    """Powers of two, at most seven."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next(step for step in (1, 2, 4, 5, 10, 20, 40) if (last - first) // step < 7)
    start = -(-first // step) * step
    return [Tick(2.0**power, size_text(2**power)) for power in range(start, last + 1, step)]


def decimal_ticks(low: float, high: float, text: typing.Callable[[float], str]) -> list[Tick]:
    """Powers of ten, with 2 and 5 between them where there is room."""
    decades = math.log10(high / low)
    factors = (1, 2, 5) if decades <= 2.2 else (1,)
    step = 1 if decades <= 7 else 2
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        if power % step == 0:
            ticks += [Tick(factor * 10.0**power, text(factor * 10.0**power)) for factor in factors]
    return [tick for tick in ticks if low <= tick.value <= high]


def time_ticks(low: float, high: float) -> list[Tick]:
    return decimal_ticks(low, high, tick_time_text)


def plain_ticks(low: float, high: float) -> list[Tick]:
    return decimal_ticks(low, high, short)


def values_as_ticks(values: list[float], text: typing.Callable[[float], str]) -> Ticks:
    """Where there are only a few, such as rates."""
    return lambda low, high: [Tick(value, text(value)) for value in values]
