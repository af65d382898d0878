# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them."""

import math
import typing

from reporting.break_even import BreakEven, Outcome
from reporting.comparison import Group

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
NO_FIGURE = "–"


def digits(value: float, count: int = 3) -> str:
    """A measured value with `count` significant digits, or all before the point if those are more."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.{count - 1}e}"))))
    if magnitude < -4:
        return f"{value:.{count - 1}e}"
    return f"{value:.{max(0, count - 1 - magnitude)}f}"


def short(value: float, count: int = 3) -> str:
    """The same for values that are often round: 4 instead of 4.00."""
    text = digits(value, count)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def size_text(size: float, count: int = 3) -> str:
    """Bytes with a binary unit."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{short(size, count)} {UNITS[unit]}"


def with_time_unit(time_us: float, text: typing.Callable[[float], str]) -> str:
    if time_us < 1e3:
        return f"{text(time_us)} us"
    return f"{text(time_us / 1e3)} ms" if time_us < 1e6 else f"{text(time_us / 1e6)} s"


def time_text(time_us: float) -> str:
    return with_time_unit(time_us, digits)


def tick_time_text(time_us: float) -> str:
    return with_time_unit(time_us, short)


def ms_text(time_us: float | None) -> str:
    """For columns whose head says that all are milliseconds."""
    return NO_FIGURE if time_us is None else digits(time_us / 1e3)


def rate_text(bits_per_second: float) -> str:
    if bits_per_second < 1e9:
        return f"{short(bits_per_second / 1e6)} Mbit/s"
    return f"{short(bits_per_second / 1e9)} Gbit/s"


def speedup_text(ratio: float | None) -> str:
    """Two digits behind the point at most: 0.56x, 8.65x, 27.9x."""
    return NO_FIGURE if ratio is None else f"{digits(ratio, 3 if ratio >= 1 else 2)}x"


def share_text(share: float | None) -> str:
    return NO_FIGURE if share is None else f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def link_text(link: tuple[str, int | None]) -> str:
    name, bits_per_second = link
    if name == "shm":
        return "shared memory"
    return "no rate limit" if bits_per_second is None else rate_text(bits_per_second)


def hosts_text(group: Group) -> str:
    return f"{group.layout.hosts} processes" if group.link == "shm" else group.layout.text


def group_text(group: Group) -> str:
    return f"{link_text((group.link, group.bits_per_second))}, {hosts_text(group)}"


def break_even_text(result: BreakEven) -> str:
    if result.outcome is Outcome.UNKNOWN:
        return NO_FIGURE
    if result.outcome is Outcome.ALWAYS:
        return f"from {size_text(result.smallest)} or less"
    if result.outcome is Outcome.FROM:
        return f"from {size_text(result.size, 2)}"
    if not result.wins_below:
        return f"not up to {size_text(result.largest)}"
    least, most = result.wins_below[0], result.wins_below[-1]
    reach = size_text(least) if least == most else f"{size_text(least)} to {size_text(most)}"
    return f"only within {reach}" if least != most else f"only at {reach}"
