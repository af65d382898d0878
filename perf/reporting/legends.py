# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Legends of charts: pieces of lines with their markers, and what they stand for."""

from reporting.figures import Figures
from reporting.line_chart import marker_shape
from reporting.markup import Markup, tag
from reporting.summary_charts import hosts_styles
from reporting.systems import System


def key(css_class: str, marker: str, label: str) -> Markup:
    """One entry. Its picture is left out for those who listen: shapes mean nothing there."""
    sample = [tag("polyline", points="0,7 30,7")]
    if marker:
        sample.append(marker_shape(marker, 15.0, 7.0))
    picture = tag("svg", tag("g", *sample, class_=f"line {css_class}"), viewBox="0 0 30 14", class_="key",
                  aria_hidden="true")
    return tag("li", picture, label)


def systems_legend(systems: list[System]) -> Markup:
    return tag("ul", *(key(f"s-{system.name}", system.marker, system.label) for system in systems),
               key("limit-dense", "", "limit, full precision"), key("limit-one-bit", "", "limit, one bit"),
               class_="legend")


def hosts_legend(figures: Figures, *formulas: Markup) -> Markup:
    hosts = (key(css_class, marker, f"{count} hosts")
             for count, (css_class, marker) in hosts_styles(figures).items())
    return tag("ul", *hosts, *formulas, class_="legend")
