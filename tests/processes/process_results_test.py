# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Results of processes over socket, and over ucx where it is named, equal those of threads over local,
byte for byte: process_results_test.py RANK_RESULTS [ucx] RANKS[/RANKS_PER_HOST]..."""

import sys

import job


def main() -> int:
    program, *rank_counts = sys.argv[1:]
    ways = job.SOCKET_WAYS | {"encrypted": job.SOCKET_WAYS["tcp"] | {"ONEBIT_SOCKET_SEAL": "1"}}
    if rank_counts[0] == "ucx":
        rank_counts.pop(0)
        ways |= job.UCX_WAYS
    for counts in rank_counts:
        ranks, host_ranks = map(int, f"{counts}/0".split("/")[:2])
        expected = job.results_of_threads(program, ranks, host_ranks)
        for way, variables in ways.items():
            with job.Job([[program]] * ranks, ONEBIT_HOST_RANKS=str(host_ranks), **variables) as running:
                for number, rank in enumerate(running.ranks):
                    status = rank.exit_status()
                    assert status == 0, (ranks, way, number, status, [each.lines for each in running.ranks])
                assert running.ranks[0].lines == expected, (ranks, way, running.ranks[0].lines)
        print(f"{counts} ranks: {len(expected)} kinds of calls give the same bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
