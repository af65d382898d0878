# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What runs of few steps say on stderr."""


def unexpected(stderr: str) -> str:
    """All lines but the warnings that the variance is frozen early or hardly refreshed: few steps cannot avoid it."""
    return "".join(line for line in stderr.splitlines(keepends=True)
                   if not any(f": the variance will be {done} " in line for done in ("frozen after", "refreshed")))
