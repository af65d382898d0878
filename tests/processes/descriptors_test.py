# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank with few file descriptors fails with a text, never by a signal: descriptors_test.py RANK_LOOP."""

import sys

import job


def check_server(loop: str):
    """Of four ranks the first lacks them, for letting the others in or for connecting to them: all name the cause.

    With fewer than 10 it may lack even the one at which it listens, and then nobody can ask it."""
    failed = []
    for limit in (11, 12, 18, 20):
        poor = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", loop, "2", "1000", "ef"]
        with job.Job([poor] + [[loop, "2", "1000", "ef"]] * 3, ONEBIT_CONNECT_TIMEOUT_MS="8000") as running:
            status = [rank.exit_status() for rank in running.ranks]
            if status == [0] * 4:
                continue
            failed.append(limit)
            for rank in running.ranks:
                text = rank.lines[-1]
                assert "too few file descriptors" in text and "ulimit -n" in text, (
                    limit, [rank.lines for rank in running.ranks])
    assert 11 in failed, failed
    print("limits at which rank 0 of four lacks descriptors:", failed)


def main() -> int:
    check_server(sys.argv[1])
    loop = [sys.argv[1], "2", "1000", "ef"]
    failed = []
    for limit in range(8, 24):
        poor = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *loop]
        with job.Job([loop, poor], ONEBIT_CONNECT_TIMEOUT_MS="3000") as running:
            status = [rank.exit_status() for rank in running.ranks]
            if status == [0, 0]:
                continue
            assert status == [1, 1], (limit, status, [rank.lines for rank in running.ranks])
            failed.append(limit)
            text = running.ranks[1].lines[-1]
            assert "too few file descriptors" in text and "ulimit -n" in text, (limit, text)
            assert "rank 1 failed first" in running.ranks[0].lines[-1], running.ranks[0].lines
    assert 8 in failed and 23 not in failed, failed
    print("limits at which a rank lacks descriptors:", failed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
