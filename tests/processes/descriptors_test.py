# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank with few file descriptors fails with a text, never by a signal: descriptors_test.py RANK_LOOP."""

import sys

import job


def check_server(loop: str):
    """Of four ranks the first lacks them, for letting the others in or for connecting to them: all name the cause.

    It may lack even the one with which it looks for its address, or the one at which it listens: how many it needs
    until then depends on the networks of the machine. Then nobody can ask it."""
    failed, told = [], 0
    for limit in (11, 12, 18, 20):
        poor = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", loop, "2", "1000", "ef"]
        with job.Job([poor] + [[loop, "2", "1000", "ef"]] * 3, ONEBIT_CONNECT_TIMEOUT_MS="8000") as running:
            status = [rank.exit_status() for rank in running.ranks]
            if status == [0] * 4:
                continue
            failed.append(limit)
            texts = [rank.lines[-1] for rank in running.ranks]
            names_cause = ["too few file descriptors" in text and "ulimit -n" in text for text in texts]
            told += all(names_cause)
            assert all(names_cause) or names_cause[0] and not told and all(
                "is rank 0 running" in text for text in texts[1:]), (limit, texts)
    assert 11 in failed and told, failed
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
