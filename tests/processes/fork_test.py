# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Forked children and their parents: fork_test.py RANK_LOOP [ucx].

Children destroy their copies of a communicator, and their parents go on. Children that call are
refused, and nobody else notices. A rank that is killed while its children live is known as lost by
the end of its connections, which the children do not hold.
"""

import os
import re
import signal
import sys

import job

INVALID_USAGE = 5
WORKERS = 4
WORKER = re.compile(r"worker (\d+) reduced (\d+) aborted (\d+) destroyed (\d+) (.*)")


def check_workers(program: str, way: str, settings: dict[str, str], victim: int):
    """Ranks 0 to 2, each with workers; `victim` is killed."""
    command = [program, "0", "100000", "ef", "--workers", str(WORKERS)]
    silence = {"ONEBIT_LOSS_TIMEOUT_MS": str(1000 * job.NO_SILENCE_SECONDS)}
    with job.Job([command] * 3, **(silence | settings)) as running:
        running.wait_until_ready()
        workers = []
        try:
            for rank in running.ranks:
                for line in rank.wait_for_lines("worker", WORKERS, job.PATIENCE_SECONDS):
                    match = WORKER.fullmatch(line)
                    assert match, line
                    workers.append(int(match[1]))
                    results = [int(match[field]) for field in (2, 3, 4)]
                    assert results == [INVALID_USAGE, INVALID_USAGE, 0], line
                    assert "belongs to the parent of this forked process" in match[5], line
            assert not any(line.startswith("ended") for rank in running.ranks for line in rank.lines)
            since = running.hurt(victim, signal.SIGKILL)
            slowest = 0.0
            for number, rank in enumerate(running.ranks):
                if number == victim:
                    continue
                result, when, text = rank.ended(job.PATIENCE_SECONDS)
                assert result in (6, 102) and f"rank {victim} is gone" in text, text
                slowest = max(slowest, when - since)
            for worker in workers:
                os.kill(worker, 0)  # it lives
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
    print(f"{way}: rank {victim} was killed, its {WORKERS} workers live: all know after {slowest:.3f} s",
          flush=True)


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
    ways = job.SOCKET_WAYS | (job.UCX_WAYS if "ucx" in sys.argv[2:] else {})
    for way, settings in ways.items():
        for victim in (0, 2):
            check_workers(sys.argv[1], way, settings, victim)
    return 0


if __name__ == "__main__":
    sys.exit(main())
