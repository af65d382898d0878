# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a job of 4 processes again and again: starts_test.py RANK_LOOP STARTS.

No start may fail or hang, and nothing may be left: no process, listening port, shared memory or file.
"""

import sys
import time

import job


def main() -> int:
    program, starts = sys.argv[1], int(sys.argv[2])
    before = job.leftovers()
    slowest = 0.0
    for start in range(starts):
        begin = time.monotonic()
        with job.Job([[program, "3", "10000", "ef"]] * 4) as running:
            for rank in running.ranks:
                result, _, text = rank.ended(20)
                assert result == 0, f"start {start}: {text}"
                status = rank.exit_status()
                assert status == 0, f"start {start}: exit {status}: {rank.lines}"
            assert not running.rendezvous.exists(), f"start {start}: the rendezvous file is left"
        slowest = max(slowest, time.monotonic() - begin)
    left = job.left_behind(before, job.leftovers)
    assert not left, f"left behind: {left}"
    print(f"{starts} starts of 4 processes, the slowest took {slowest:.2f} s; nothing is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
