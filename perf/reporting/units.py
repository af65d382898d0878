# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them."""

from reporting.break_even import BreakEven, Outcome
from reporting.comparison import Group

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
NO_FIGURE = "–"


def digits(value: float, count: int = 3) -> str:
    """With `count` significant digits, but no fewer before the point than there are."""
    if value == 0:
        return "0"
    text = f"{value:.{count}g}"
    if "e" not in text:
        return text
    return f"{value:.0f}" if value >= 1 else f"{value:.{count - 1}e}"


def size_text(size: float) -> str:
    """Bytes with a binary unit."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{digits(size)} {UNITS[unit]}"


def time_text(time_us: float) -> str:
    if time_us < 1e3:
        return f"{digits(time_us)} us"
    return f"{digits(time_us / 1e3)} ms" if time_us < 1e6 else f"{digits(time_us / 1e6)} s"


def ms_text(time_us: float | None) -> str:
    """For columns whose head says that all are milliseconds."""
    return NO_FIGURE if time_us is None else digits(time_us / 1e3)


def rate_text(bits_per_second: float) -> str:
    if bits_per_second < 1e9:
        return f"{digits(bits_per_second / 1e6)} Mbit/s"
    return f"{digits(bits_per_second / 1e9)} Gbit/s"


def speedup_text(ratio: float | None) -> str:
    return NO_FIGURE if ratio is None else f"{ratio:.0f}x" if ratio >= 99.5 else f"{digits(ratio)}x"


def share_text(share: float | None) -> str:
    return NO_FIGURE if share is None else f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def link_text(link: tuple[str, int | None]) -> str:
    name, bits_per_second = link
    if name == "shm":
        return "shared memory"
    return "no rate limit" if bits_per_second is None else rate_text(bits_per_second)


def hosts_text(group: Group) -> str:
    return f"{group.hosts} {'processes' if group.link == 'shm' else 'hosts'}"


def group_text(group: Group) -> str:
    return f"{link_text((group.link, group.bits_per_second))}, {hosts_text(group)}"


def break_even_text(result: BreakEven) -> str:
    if result.outcome is Outcome.UNKNOWN:
        return NO_FIGURE
    if result.outcome is Outcome.ALWAYS:
        return f"from {size_text(result.smallest)} or less"
    if result.outcome is Outcome.FROM:
        return f"from {size_text(result.size)}"
    if not result.wins_below:
        return f"not up to {size_text(result.largest)}"
    least, most = result.wins_below[0], result.wins_below[-1]
    reach = size_text(least) if least == most else f"{size_text(least)} to {size_text(most)}"
    return f"only within {reach}" if least != most else f"only at {reach}"
