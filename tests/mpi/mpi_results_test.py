# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A program that links no MPI: which plugin it gets, and that its results are those of local and ucx,
byte for byte: results_test.py RANK_RESULTS [ucx]."""

import subprocess
import sys

import mpi_launch

sys.path.append(f"{sys.path[0]}/../processes")
import job  # noqa: E402  (of tests/processes)

MPI = {"ONEBIT_TRANSPORT": "mpi"}
# One variable of each launcher.
SIGNS = {"PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0"}


def refuse_to_guess(program: str, names: list[str], **variables: str):
    done = subprocess.run([program], env=mpi_launch.environment(**MPI, **variables),
                          capture_output=True, text=True, timeout=20)
    assert done.returncode != 0
    for name in names:
        assert name in done.stderr, (name, done.stderr)


def over_ucx(program: str, ranks: int, **variables: str) -> list[str]:
    with job.Job([[program]] * ranks, ONEBIT_TRANSPORT="ucx", **variables) as running:
        for rank in running.ranks:
            assert rank.exit_status() == 0, rank.lines
        return running.ranks[0].lines


def main() -> int:
    program, *others = sys.argv[1:]
    files = [f"libonebit-transport-mpi-{abi}.so" for abi in mpi_launch.LAUNCHERS]
    refuse_to_guess(program, [*files, "mpirun"])
    refuse_to_guess(program, [*files, "both launchers", *SIGNS], **SIGNS)
    for ranks, host_ranks in ((1, 0), (3, 0), (5, 2)):
        expected = job.results_of_threads(program, ranks, host_ranks)
        assert expected
        hosts = {"ONEBIT_HOST_RANKS": str(host_ranks)}
        for abi in mpi_launch.LAUNCHERS:
            assert mpi_launch.succeed(abi, ranks, [program], **MPI, **hosts).splitlines() == expected, abi
        if "ucx" in others:
            assert over_ucx(program, ranks, **hosts) == expected, "ucx"
        print(f"{ranks} ranks: {len(expected)} kinds of calls give the same bytes over local, "
              f"{', '.join([*mpi_launch.LAUNCHERS, *others])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
