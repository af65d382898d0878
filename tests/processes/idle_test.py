# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What an idle communicator costs, at the default heartbeat of 1 s: idle_test.py RANK_LOOP.

Less than 0.1 % of a core per process, the one with the control channel's server included.
"""

import pathlib
import sys
import time

import job

SECONDS = 4
LIMIT_PERCENT = 0.1


def cpu_seconds(pid: int) -> float:
    """On any core, by all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def main() -> int:
    if not pathlib.Path("/proc/self/schedstat").exists():
        print("this kernel does not count the time of threads")
        return 77
    command = [sys.argv[1], "3", "1000", "dense", "--pause", str((SECONDS + 2) * 1000)]
    with job.Job([command] * 4) as running:
        running.wait_until_ready()
        time.sleep(0.5)  # what follows a start
        pids = [rank.process.pid for rank in running.ranks]
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(SECONDS)
        percent = [(cpu_seconds(pid) - start) / SECONDS * 100 for pid, start in zip(pids, before)]
        print("idle, percent of a core by rank:", ", ".join(f"{one:.4f}" for one in percent))
        assert max(percent) < LIMIT_PERCENT
        for rank in running.ranks:
            result, _, text = rank.ended(20)
            assert result == 0, text
    return 0


if __name__ == "__main__":
    sys.exit(main())
