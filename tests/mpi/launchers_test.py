# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Which MPI a process gets, and what it says when that is the wrong one or none:
launchers_test.py APPLICATION_RANK_OPENMPI APPLICATION_RANK_MPICH [RANK_RESULTS]."""

import subprocess
import sys

import launch

MPI = {"ONEBIT_TRANSPORT": "mpi"}


def refuse_the_launcher_of_another(programs: dict[str, str]):
    for abi, program in programs.items():
        other = next(name for name in programs if name != abi)
        done = launch.run(other, 2, [program, "library"], **MPI)
        assert done.returncode != 0, done
        assert "the launcher of another MPI has started this program" in done.stderr, done.stderr
        print(f"a program of {abi} under the launcher of {other} is refused", flush=True)


def refuse_to_guess(program: str):
    """A program that links no MPI, and no launcher of one."""
    done = subprocess.run([program], env=launch.environment(**MPI), capture_output=True, text=True,
                          timeout=20)
    assert done.returncode != 0
    for name in ("libonebit-transport-mpi-openmpi.so", "libonebit-transport-mpi-mpich.so", "mpirun"):
        assert name in done.stderr, done.stderr


def give_equal_results(program: str):
    """A program that links no MPI, under either launcher; threads are the model."""
    for ranks in (1, 2, 3, 4):
        threads = subprocess.run([program, str(ranks)], check=True, capture_output=True, text=True)
        for abi in launch.LAUNCHERS:
            assert launch.succeed(abi, ranks, [program], **MPI) == threads.stdout, (abi, ranks)
    print("results are those of threads, byte for byte", flush=True)


def main() -> int:
    openmpi, mpich, *results = sys.argv[1:]
    refuse_the_launcher_of_another({"openmpi": openmpi, "mpich": mpich})
    if results and results[0]:
        refuse_to_guess(results[0])
        give_equal_results(results[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
