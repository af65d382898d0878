# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ends process groups whose starter is no more, however that ended.

The starter writes the number of each group to stdin, and the negative number once the group has ended.
That nobody can write any more is its end. What the kernel ends with its parent (PR_SET_PDEATHSIG) is
one process; what that has started, such as the program of compute-sanitizer, would run on.
"""

import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = set()
    for line in sys.stdin:
        group = int(line)
        if group > 0:
            groups.add(group)
        else:
            groups.discard(-group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    main()
