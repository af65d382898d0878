# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Errors, and the exit status of each."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 77  # CTest and Automake take it for a skipped test
SIGNAL_STATUS = 128  # what shells add to the number of a signal


class LabError(Exception):
    """The lab cannot go on; the text says why."""

    status = EXIT_FAILED


class UsageError(LabError):
    """The command line makes no sense."""

    status = EXIT_USAGE


class Unavailable(LabError):
    """This machine or user cannot have a lab: no root, no kernel support, no tool."""

    status = EXIT_UNAVAILABLE
