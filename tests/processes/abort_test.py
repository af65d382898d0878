# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebitCommAbort from another thread while a collective is blocked: abort_test.py RANK_LOOP."""

import sys

import job

ABORTED = 105
REMOTE_ERROR = 6


def main() -> int:
    with job.Job([[sys.argv[1], "0", "1000000", "ef", "--abort-after", "300"]] * 4) as running:
        running.wait_until_ready()
        line = running.ranks[0].wait_for("aborted", job.PATIENCE_SECONDS)
        print(f"onebitCommAbort returned after {line.split()[1]} s")
        result, _, text = running.ranks[0].ended(job.PATIENCE_SECONDS)
        assert result == ABORTED, text
        for rank in running.ranks[1:]:
            result, _, text = rank.ended(job.PATIENCE_SECONDS)
            assert result == REMOTE_ERROR, text
            assert "rank 0 was aborted: its program" in text, text
        for rank in running.ranks:
            assert rank.exit_status() == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
