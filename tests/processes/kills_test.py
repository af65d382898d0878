# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kills one of 4 processes at a random moment from its start on: kills_test.py RANK_LOOP KILLS

Whether it dies while the ranks look for each other, connect, or work: every survivor returns an error that
names it, in time, and nothing is left on the machine.
"""

import concurrent.futures
import pathlib
import random
import signal
import sys
import time

import job

RANKS = 4
JOBS_AT_ONCE = 4
CONNECT_SECONDS = 3
LATEST_SECONDS = 0.06  # an idle machine needs a third of that from the start to the first call


def abstract_names() -> set[str]:
    """Of Unix sockets that listen."""
    lines = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()[1:]
    return {fields[7] for fields in map(str.split, lines)
            if len(fields) > 7 and fields[7].startswith("@") and fields[3] == "00010000"}


def leftovers() -> set[str]:
    return job.leftovers() | abstract_names()


def check(loop: str, way: str, seed: int) -> str:
    """What the victim was doing: starting, or at work."""
    source = random.Random(seed)
    victim, delay = source.randrange(RANKS), source.uniform(0, LATEST_SECONDS)
    times = {"ONEBIT_CONNECT_TIMEOUT_MS": str(1000 * CONNECT_SECONDS), "ONEBIT_DEBUG": "NONE"}
    with job.Job([[loop, "0", "100000", "ef"]] * RANKS, **times, **job.SOCKET_WAYS[way]) as running:
        time.sleep(delay)  # any moment of a start
        running.hurt(victim, signal.SIGKILL)
        what = f"seed {seed}, {way}, rank {victim} killed after {delay:.3f} s"
        for number, rank in enumerate(running.ranks):
            if number == victim:
                continue
            status = rank.exit_status()
            assert status in (0, 1), f"{what}: rank {number}: {status}"
            last = rank.lines[-1]
            # A rank that had not met the others yet cannot know whom they have lost.
            assert f"rank {victim}" in last or "not joined within" in last, f"{what}: rank {number}: {last}"
        running.ranks[victim].exit_status()
        return "at work" if "ready" in running.ranks[victim].lines else "starting"


def main() -> int:
    loop, kills = sys.argv[1], int(sys.argv[2])
    before = leftovers()
    cases = [(loop, way, seed) for seed in range(kills // 2) for way in job.SOCKET_WAYS]
    with concurrent.futures.ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        found = list(pool.map(lambda case: check(*case), cases))
    left = job.left_behind(before, leftovers)
    assert not left, f"left behind: {left}"
    print(f"{len(cases)} kills, {found.count('starting')} of them before the ranks were connected: "
          "all survivors have ended with an error that names the rank, and nothing is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
