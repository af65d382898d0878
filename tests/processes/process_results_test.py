# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Results of processes over socket, and over ucx where it is named, equal those of threads over local,
byte for byte: process_results_test.py RANK_RESULTS [ucx] RANKS..."""

import subprocess
import sys

import job


def main() -> int:
    program, *rank_counts = sys.argv[1:]
    ways = job.SOCKET_WAYS | {"encrypted": job.SOCKET_WAYS["tcp"] | {"ONEBIT_SOCKET_SEAL": "1"}}
    if rank_counts[0] == "ucx":
        rank_counts.pop(0)
        ways |= job.UCX_WAYS
    for ranks in map(int, rank_counts):
        threads = subprocess.run([program, str(ranks)], check=True, capture_output=True, text=True)
        expected = threads.stdout.splitlines()
        for way, variables in ways.items():
            with job.Job([[program]] * ranks, **variables) as running:
                for number, rank in enumerate(running.ranks):
                    status = rank.exit_status()
                    assert status == 0, (ranks, way, number, status, [each.lines for each in running.ranks])
                assert running.ranks[0].lines == expected, (ranks, way, running.ranks[0].lines)
        print(f"{ranks} ranks: {len(expected)} kinds of calls give the same bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
