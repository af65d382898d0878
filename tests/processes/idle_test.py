# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What an idle communicator costs, at the default heartbeat of 1 s: idle_test.py RANK_LOOP.

Less than 0.1 % of a core per process, the one with the control channel's server included. A busy
machine adds to it, with cold caches and slow cores, and never takes away: the least of some periods
counts.
"""

import pathlib
import sys
import time

import job

SECONDS = 4
PERIODS = 3  # at most
LIMIT_PERCENT = 0.1


def cpu_seconds(pid: int) -> float:
    """On any core, by all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def percent_of_a_core(pids: list[int]) -> list[float]:
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(SECONDS)
    return [(cpu_seconds(pid) - start) / SECONDS * 100 for pid, start in zip(pids, before)]


def main() -> int:
    if not pathlib.Path("/proc/self/schedstat").exists():
        print("this kernel does not count the time of threads")
        return 77
    command = [sys.argv[1], "3", "1000", "dense", "--pause", str((PERIODS * SECONDS + 2) * 1000)]
    with job.Job([command] * 4) as running:
        running.wait_until_ready()
        time.sleep(0.5)  # work after the start
        pids = [rank.process.pid for rank in running.ranks]
        for _ in range(PERIODS):
            percent = percent_of_a_core(pids)
            print("idle, percent of a core by rank:", ", ".join(f"{one:.4f}" for one in percent))
            if max(percent) < LIMIT_PERCENT:
                break
        assert max(percent) < LIMIT_PERCENT
        for rank in running.ranks:
            result, _, text = rank.ended(PERIODS * SECONDS + 20)
            assert result == 0, text
    return 0


if __name__ == "__main__":
    sys.exit(main())
