# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Legends of charts: pieces of lines with their markers, and what they stand for."""

from reporting.figures import Figures
from reporting.line_chart import marker_shape
from reporting.markup import Markup, tag
from reporting.summary_charts import layout_styles
from reporting.systems import Kind, System


def key(css_class: str, marker: str, label: str) -> Markup:
    """One entry. Its picture is left out for those who listen: shapes mean nothing there."""
    sample = [tag("polyline", points="0,7 30,7")]
    if marker:
        sample.append(marker_shape(marker, 15.0, 7.0))
    picture = tag("svg", tag("g", *sample, class_=f"line {css_class}"), viewBox="0 0 30 14", class_="key",
                  aria_hidden="true")
    return tag("li", picture, label)


def systems_legend(systems: list[System]) -> Markup:
    kinds = [kind for kind in Kind if any(system.kind is kind for system in systems)]
    return tag("ul", *(key(f"s-{system.name}", system.marker, system.label) for system in systems),
               *(key(kind.limit_class, "", f"limit, {kind.value}") for kind in kinds), class_="legend")


def layouts_legend(figures: Figures, *formulas: Markup) -> Markup:
    layouts = (key(css_class, marker, layout.text)
               for layout, (css_class, marker) in layout_styles(figures).items())
    return tag("ul", *layouts, *formulas, class_="legend")
