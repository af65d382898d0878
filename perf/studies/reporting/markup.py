# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Builds HTML and SVG in which every text is escaped, because texts come from files."""

import html


class Markup(str):
    """Text that is markup already."""


def escaped(text: str) -> Markup:
    # Control characters are not allowed in a page, not even escaped.
    printable = "".join(character if character >= " " or character in "\n\t" else "\ufffd"
                        for character in text)
    return Markup(html.escape(printable, quote=True))


def joined(*children: "str | Markup") -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children))


def tag(name: str, /, *children: "str | Markup", **attributes: "str | float | bool | None") -> Markup:
    """An element. `class_` stands for `class` and `stroke_width` for `stroke-width`; numbers are written
    with few digits; True is an attribute without a value; None and False leave it out."""
    text = f"<{name}"
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            text += f" {key}"
            continue
        if isinstance(value, float):
            value = f"{value:.2f}".rstrip("0").rstrip(".")
        text += f' {key}="{escaped(str(value))}"'
    if name in VOID:
        return Markup(f"{text}>")
    return Markup(f"{text}>{joined(*children)}</{name}>")


VOID = {"meta", "br"}
