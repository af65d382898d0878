# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kills or stops one of 4 processes inside a collective: loss_test.py RANK_LOOP [ucx].

Every survivor must return an error that names the lost rank, over shared memory and over TCP, whether
the lost rank holds the control channel (rank 0) or not: one that was killed by the end of its
connections, one that was stopped by its silence.
"""

import re
import signal
import sys

import job

RANKS = 4
LOSS_SECONDS = 2.0
WAYS = job.SOCKET_WAYS | job.UCX_WAYS
PEER_ERRORS = {6, 102}  # onebitRemoteError, onebitPeerLost


def check(program: str, way: str, mode: str, victim: int, how: signal.Signals) -> float:
    loss_seconds = LOSS_SECONDS if how == signal.SIGSTOP else job.NO_SILENCE_SECONDS
    variables = {"ONEBIT_LOSS_TIMEOUT_MS": str(int(loss_seconds * 1000)),
                 "ONEBIT_HEARTBEAT_MS": "250"} | WAYS[way]
    with job.Job([[program, "0", "1000000", mode]] * RANKS, **variables) as running:
        running.wait_until_ready()
        since = running.hurt(victim, how)
        slowest = 0.0
        for rank in range(RANKS):
            if rank == victim:
                continue
            result, when, text = running.ranks[rank].ended(job.PATIENCE_SECONDS)
            what = f"{way}, {mode}, rank {victim} got {how.name}, rank {rank}: {text}"
            assert result in PEER_ERRORS, what
            assert f"rank {victim} is gone" in text, what
            slowest = max(slowest, when - since)
            assert running.ranks[rank].exit_status() == 0, what
        if how == signal.SIGSTOP:
            # It continues, and learns that it was given up.
            running.hurt(victim, signal.SIGCONT)
            result, _, text = running.ranks[victim].ended(job.PATIENCE_SECONDS)
            assert result in PEER_ERRORS and re.search("silent for|stopped for", text), text
            assert running.ranks[victim].exit_status() == 0, text
        return slowest


def main() -> int:
    ways = WAYS if "ucx" in sys.argv[2:] else job.SOCKET_WAYS
    for way in ways:
        for how in (signal.SIGKILL, signal.SIGSTOP):
            for victim, mode in ((0, "ef"), (2, "dense")):
                seconds = check(sys.argv[1], way, mode, victim, how)
                print(f"{way}: {how.name} of rank {victim} ({mode}): all survivors "
                      f"know after {seconds:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
