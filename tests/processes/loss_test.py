# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kills or stops one of 4 processes inside a collective: loss_test.py RANK_LOOP.

Every survivor must return an error that names the lost rank within the loss time-out, over shared
memory and over TCP, whether the lost rank holds the control channel (rank 0) or not.
"""

import re
import signal
import sys

import job

RANKS = 4
LOSS_SECONDS = 2.0
# From the signal to the return of the call. The silence is counted from the last sign of life, so
# the time-out itself holds; the rest is for two busy cores.
LIMIT_SECONDS = LOSS_SECONDS + 0.5
PEER_ERRORS = {6, 102}  # onebitRemoteError, onebitPeerLost


def check(program: str, tls: str, mode: str, victim: int, how: signal.Signals) -> float:
    variables = {"ONEBIT_LOSS_TIMEOUT_MS": str(int(LOSS_SECONDS * 1000)),
                 "ONEBIT_HEARTBEAT_MS": "250", "ONEBIT_UCX_TLS": tls}
    with job.Job([[program, "0", "1000000", mode]] * RANKS, **variables) as running:
        running.wait_until_ready()
        since = running.hurt(victim, how)
        slowest = 0.0
        for rank in range(RANKS):
            if rank == victim:
                continue
            result, when, text = running.ranks[rank].ended(LIMIT_SECONDS + 5)
            what = f"{tls} {mode}, rank {victim} got {how.name}, rank {rank}: {text}"
            assert result in PEER_ERRORS, what
            assert f"rank {victim} is gone" in text, what
            assert when - since < LIMIT_SECONDS, f"{what}: after {when - since:.2f} s"
            slowest = max(slowest, when - since)
            assert running.ranks[rank].process.wait(5) == 0, what
        if how == signal.SIGSTOP:
            # It goes on, and finds that it was given up.
            running.hurt(victim, signal.SIGCONT)
            result, _, text = running.ranks[victim].ended(5)
            assert result in PEER_ERRORS and re.search("silent for|stopped for", text), text
            assert running.ranks[victim].process.wait(5) == 0, text
        return slowest


def main() -> int:
    for tls in ("all", "tcp"):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            for victim, mode in ((0, "ef"), (2, "dense")):
                seconds = check(sys.argv[1], tls, mode, victim, how)
                print(f"ONEBIT_UCX_TLS={tls} {how.name} of rank {victim} ({mode}): all survivors "
                      f"know after {seconds:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
