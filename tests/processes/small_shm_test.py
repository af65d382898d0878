# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs where /dev/shm has no room or cannot be written: small_shm_test.py RANK_LOOP [ucx]

To transport socket it is all the same; over ucx the error says what is needed.
"""

import subprocess
import sys

import job

# Options of a mount, and what an error over ucx says of it.
FOLDERS = {"size=4k": "0 MiB are free: make it larger", "ro": "it is read-only: mount it writable"}


def on(options: str, command: list[str]) -> list[str]:
    """The command line that runs `command` with a /dev/shm of its own."""
    return ["unshare", "--mount", "sh", "-c",
            'mount -t tmpfs -o "$1" tmpfs /dev/shm && shift && exec "$@"', "sh", options, *command]


def main() -> int:
    if subprocess.run(on("size=4k", ["true"]), check=False, stderr=subprocess.DEVNULL).returncode != 0:
        print("this user cannot mount")
        return 77
    loop = [sys.argv[1], "3", "100000", "ef"]
    for options, text in FOLDERS.items():
        with job.Job([on(options, loop)] * 3) as running:
            for rank in running.ranks:
                result, _, error = rank.ended(job.PATIENCE_SECONDS)
                assert result == 0, (options, error)
        if "ucx" not in sys.argv[2:]:
            continue
        with job.Job([on(options, loop)] * 2, ONEBIT_TRANSPORT="ucx") as running:
            for rank in running.ranks:
                assert rank.exit_status() == 1, (options, rank.lines)
                assert f"in /dev/shm for each rank, and {text}" in rank.lines[-1], (options, rank.lines)
                assert "ONEBIT_TRANSPORT=socket" in rank.lines[-1], (options, rank.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
