# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A start that failed because a rank was late can be repeated by the same processes:
restart_test.py RANK_LOOP."""

import os
import sys

import job


def check(program: str, what: str, **place: str):
    early = [program, "3", "1000", "ef", "--tries", "8"]
    # Longer than the time-out.
    late = ["sh", "-c", "sleep 1.5; exec \"$@\"", "sh", *early]
    with job.Job([early, early, late], ONEBIT_CONNECT_TIMEOUT_MS="1000", **place) as running:
        for rank in running.ranks[:2]:
            failure = rank.wait_for("failed", 10)
            assert "rank 2 missing" in failure or "failed first" in failure, failure
        for rank in running.ranks:
            result, _, text = rank.ended(20)
            assert result == 0, text
            assert rank.exit_status() == 0
    print(f"{what}: a second start follows one that failed")


def main() -> int:
    program = sys.argv[1]
    check(program, "file")
    # Below the ports that the system hands out, of which another test may have got any.
    check(program, "host:port", ONEBIT_RENDEZVOUS=f"127.0.0.1:{20000 + os.getpid() % 10000}",
          ONEBIT_SECRET="a secret of this test only")
    return 0


if __name__ == "__main__":
    sys.exit(main())
