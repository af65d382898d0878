# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Turns figures of matplotlib (Debian: python3-matplotlib) into SVG, for a page or as a picture of its own.

In a page, colours of style.css become its variables, so that charts follow the reader's theme.
"""

import io
import math
import pathlib
import re
import typing

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reporting.markup import Markup, tag
from reporting.units import size_text

STYLE = pathlib.Path(__file__).parent / "style.css"
# Names and values of the colours on white paper, which the sheet lists first.
COLOURS = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", STYLE.read_text(encoding="utf-8").partition("@media")[0]))
INK, QUIET, RULE, SURFACE = (COLOURS[name] for name in ("ink", "quiet", "rule", "surface"))
SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "DejaVu Sans", "font.size": 9.0,
    "text.color": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.edgecolor": QUIET,
    "xtick.color": QUIET, "ytick.color": QUIET, "axes.titlesize": 9.0, "axes.labelsize": 9.0,
    "xtick.major.pad": 6.0,
    "axes.facecolor": "none", "axes.grid": True, "axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.8,
    "legend.frameon": False, "lines.linewidth": 1.3, "lines.markersize": 5.0, "path.simplify": False}
LICENCE = "<!-- SPDX-FileCopyrightText: The onebit authors\n     SPDX-License-Identifier: Apache-2.0 -->\n"
FONTS = "'DejaVu Sans', Verdana, sans-serif"  # the first is the one that matplotlib measures
NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" '


def settings():
    """The look of all charts, while figures are made and drawn."""
    return matplotlib.rc_context(SETTINGS)


def logarithmic(panel: Axes, axis: str, values: typing.Iterable[float], ticks: typing.Iterable[float],
                text: typing.Callable[[float], str]) -> None:
    """Shows all values on the axis, "x" or "y", with room around them, and the ticks that lie within."""
    values = list(values)
    low, high = min(values) / 1.25, max(values) * 1.25
    if high / low < 4:  # a single value has neighbours to be read against
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    panel.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
    place = {"x": panel.xaxis, "y": panel.yaxis}[axis]
    place.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    place.set_minor_locator(NullLocator())
    place.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def sizes(panel: Axes, axis: str, values: typing.Iterable[float]) -> None:
    """Bytes at powers of two, at most seven."""
    values = list(values)
    first, last = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    step = next(step for step in (1, 2, 4, 5, 10, 20, 40) if (last - first) // step < 7)
    ticks = [2.0 ** power for power in range(-(-first // step) * step, last + 1, step)]
    logarithmic(panel, axis, values, ticks, size_text)


def decimals(panel: Axes, axis: str, values: typing.Iterable[float], text: typing.Callable[[float], str]) -> None:
    """Powers of ten, with 2 and 5 between them where there is room."""
    values = list(values)
    low, high = math.floor(math.log10(min(values))) - 1, math.ceil(math.log10(max(values))) + 1
    decades = math.log10(max(values) / min(values))
    factors = (1, 2, 5) if decades <= 2 else (1,)
    step = 1 if decades <= 7 else 2
    ticks = [factor * 10.0 ** power for power in range(low, high + 1) if power % step == 0 for factor in factors]
    logarithmic(panel, axis, values, ticks, text)


def inline(figure: Figure, identity: str, title: str, description: str) -> Markup:
    """For a page. `identity` is unique in it; the title and the description are what a screen reader says."""
    text = _drawn(figure, identity, title, description, "")
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return Markup(text)


def picture(figure: Figure, identity: str, title: str, description: str) -> str:
    """A file of its own, on white."""
    figure.set_facecolor("white")
    return LICENCE + _drawn(figure, identity, title, description, NAMESPACES) + "\n"


def _drawn(figure: Figure, identity: str, title: str, description: str, namespaces: str) -> str:
    with settings(), matplotlib.rc_context({"svg.hashsalt": identity}), io.StringIO() as file:
        figure.savefig(file, format="svg", facecolor=figure.get_facecolor())
        text = file.getvalue()
    box = re.search(r'viewBox="[^"]*"', text)[0]
    body = text[text.index(">", text.index("<svg")) + 1:text.rindex("</svg>")]
    for part in ("metadata", "style"):
        body = re.sub(rf"<{part}\b.*?</{part}>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->|\n\s*", lambda match: "" if match[0].startswith("<!") else "\n", body)
    body = re.sub(r"<[^>]+>", lambda match: re.sub(r"(\d\.\d\d)\d+", r"\1", match[0]), body)
    body = body.replace("'DejaVu Sans'", FONTS)
    # Elements that nothing refers to need no name; other names must differ from those of other charts.
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda match: f' id="{identity}-{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r'(?:xlink:)?href="#', f'href="#{identity}-', body).replace("url(#", f"url(#{identity}-")
    names = [f"{identity}-title", f"{identity}-desc"]
    return (f'<svg {namespaces}class="chart" {box} stroke-linejoin="round" role="img" '
            f'aria-labelledby="{" ".join(names)}">'
            + tag("title", title, id=names[0]) + tag("desc", description, id=names[1]) + body.strip() + "</svg>")
