# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What runs of few steps say on stderr."""


def unexpected(stderr: str) -> str:
    """All lines but the warning that the variance is frozen early, which few steps cannot avoid."""
    return "".join(line for line in stderr.splitlines(keepends=True)
                   if ": the variance will be frozen after " not in line)
