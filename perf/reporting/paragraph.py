# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Paragraphs of Markdown, broken into lines."""

from __future__ import annotations

import textwrap

WIDTH = 105


def paragraph(*sentences: str, bullet: str = "") -> str:
    """One paragraph or item of a list; empty sentences are left out."""
    return textwrap.fill(" ".join(filter(None, sentences)), WIDTH, initial_indent=bullet,
                         subsequent_indent=" " * len(bullet), break_on_hyphens=False, break_long_words=False)
