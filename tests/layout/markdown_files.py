# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fenced code blocks of a Markdown text."""

import re

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of every block, in order; the language may be empty."""
    return [(match[1], match[2]) for match in FENCE.finditer(text)]
