# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks whose limits are too low fail with a text that names the limit, on all ranks, and are never ended by a signal:
limits_test.py RANK_LOOP."""

import os
import pathlib
import sys
import tempfile

import job


def limited(limit: str, command: list[str]) -> list[str]:
    return ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]


def check_no_file(loop: list[str]):
    """Rank 0 cannot write the file at which the ranks would meet."""
    with job.Job([limited("-f 0", loop), loop], ONEBIT_CONNECT_TIMEOUT_MS="1000") as running:
        text = running.ranks[0].wait_for("onebitCommInitEnv: ", job.PATIENCE_SECONDS)
        assert "File too large: raise the limit of file sizes (ulimit -f)" in text, text
        assert [rank.exit_status() for rank in running.ranks] == [1, 1]


def check_no_log(loop: list[str]):
    """Ranks that meet at a port need no files: lines of the log are lost, and a trace cannot begin."""
    with tempfile.TemporaryDirectory(prefix="onebit-test-") as folder:
        place = {"ONEBIT_RENDEZVOUS": f"127.0.0.1:{20000 + os.getpid() % 10000}", "ONEBIT_SECRET": "a secret of this test",
                 "ONEBIT_DEBUG": "INFO", "ONEBIT_DEBUG_FILE": f"{folder}/log.%p"}
        with job.Job([limited("-f 0", loop)] * 2, **place) as running:
            for rank in running.ranks:
                result, _, text = rank.ended(job.PATIENCE_SECONDS)
                assert result == 0, text
            assert [rank.exit_status() for rank in running.ranks] == [0, 0]
        place["ONEBIT_TRACE"] = f"{folder}/trace.%r"
        with job.Job([limited("-f 0", loop)] * 2, **place) as running:
            for rank in running.ranks:
                text = rank.wait_for("onebitCommInitEnv: ", job.PATIENCE_SECONDS)
                assert "cannot write the trace file" in text and "File too large" in text, text
                assert rank.exit_status() == 1
        assert all(path.stat().st_size == 0 for path in pathlib.Path(folder).iterdir())


def check_no_memory(loop: list[str]):
    """The address space of rank 1 is too small for its messages."""
    with job.Job([loop, limited("-v 80000", loop), loop], ONEBIT_CONNECT_TIMEOUT_MS="30000") as running:
        for rank in running.ranks:
            text = rank.wait_for("onebitCommInitEnv: ", job.PATIENCE_SECONDS)
            assert "no memory for messages, " in text and " bytes for each of 3 ranks: out of memory" in text, text
            assert "may use 81920000 bytes of address space (ulimit -v)" in text, text


def main() -> int:
    loop = [sys.argv[1], "2", "1000", "ef"]
    check_no_file(loop)
    check_no_log(loop)
    check_no_memory(loop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
