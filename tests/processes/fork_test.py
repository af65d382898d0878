# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Forked children destroy their copies of a communicator, and their parents go on:
fork_test.py RANK_LOOP."""

import sys

import job


def main() -> int:
    # With threads that a forked child does not have, too.
    for way, threads in (("shared memory", "1"), ("tcp", "0")):
        command = [sys.argv[1], "100", "100000", "ef", "--fork", "2"]
        with job.Job([command] * 3, ONEBIT_COMPUTE_THREADS=threads, **job.SOCKET_WAYS[way]) as running:
            for rank in running.ranks:
                result, _, text = rank.ended(20)
                assert result == 0, text
                assert rank.exit_status() == 0, rank.lines
                assert not any(line.startswith("child failed") for line in rank.lines), rank.lines
    return 0


if __name__ == "__main__":
    sys.exit(main())
