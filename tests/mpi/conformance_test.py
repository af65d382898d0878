# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance program on transport mpi: conformance_test.py ABI CONFORMANCE_RANK PLUGIN."""

import sys

import mpi_launch

# Numbers of ranks, and settings that select other paths of the protocol: no payload with its
# header, and none before it was requested.
CASES = [(1, []), (2, []), (4, []), (3, ["ONEBIT_MPI_EAGER_BYTES=0"]), (2, ["ONEBIT_MPI_EAGER_BYTES=3584"]),
         (3, ["ONEBIT_MPI_EARLY_BYTES=0"]),
         # The allreduce of MPI.
         (3, ["ONEBIT_MPI_NATIVE_DENSE=1"])]
# Sizes are limits of the plugin's protocol, which is one source for both MPIs.
CASES_OF_MPICH = [case for case in CASES if not case[1] or "NATIVE" in case[1][0]]


def main() -> int:
    abi, program, plugin = sys.argv[1:]
    for ranks, settings in CASES if abi == "openmpi" else CASES_OF_MPICH:
        checks = mpi_launch.succeed(abi, ranks, [program, plugin, *settings]).splitlines()
        assert checks, "no check was run"
        print(f"{ranks} ranks {settings}: {len(checks)} checks", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
