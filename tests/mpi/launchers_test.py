# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Which MPI a process gets, and what it says when that is the wrong one or none:
launchers_test.py APPLICATION_RANK_OPENMPI APPLICATION_RANK_MPICH."""

import sys

import mpi_launch

MPI = {"ONEBIT_TRANSPORT": "mpi"}


def refuse_the_launcher_of_another(programs: dict[str, str]):
    for abi, program in programs.items():
        other = next(name for name in programs if name != abi)
        done = mpi_launch.run(other, 2, [program, "library"], **MPI)
        assert done.returncode != 0, done
        assert "the launcher of another MPI has started this program" in done.stderr, done.stderr
        print(f"a program of {abi} under the launcher of {other} is refused", flush=True)


def take_sizes_of_others_for_what_they_are(programs: dict[str, str]):
    """WORLD_SIZE is torchrun's, and may be that of a larger job around this one."""
    for abi, program in programs.items():
        mpi_launch.succeed(abi, 2, [program, "library"], WORLD_SIZE="8", **MPI)


def main() -> int:
    openmpi, mpich = sys.argv[1:]
    programs = {"openmpi": openmpi, "mpich": mpich}
    refuse_the_launcher_of_another(programs)
    take_sizes_of_others_for_what_they_are(programs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
