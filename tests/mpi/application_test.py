# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that use MPI and onebit side by side: application_test.py ABI APPLICATION_RANK [CHECK]."""

import pathlib
import sys
import tempfile
import time

import mpi_launch

MPI = {"ONEBIT_TRANSPORT": "mpi"}
CHECKS = {
    "traffic": (4, {}), "traffic_single": (4, {}), "main_thread": (2, {}), "any_thread": (3, {}),
    "finalized": (2, {}), "library": (3, MPI), "splits": (4, MPI), "splits_serialized": (4, MPI),
    "native": (3, MPI | {"ONEBIT_MPI_NATIVE_DENSE": "1"}),
}
# With these flags the launcher leaves the other ranks alone, and this many must survive. MPICH's
# launcher breaks soon after the death, and often ends them before they have printed anything; then
# the test tries again.
KILL_FLAGS = {"openmpi": [((), 0, 1), (("--enable-recovery",), 2, 1)],
              "mpich": [((), 0, 1), (("-disable-auto-cleanup",), 1, 12)]}

# Ranks that waited for each other's deadlines in vain would take longer, however busy the machine is.
KILLED_SECONDS = 100


def survivors(abi: str, program: str, flags: tuple[str, ...]) -> list[str]:
    """The errors of ranks that the launcher has not ended before."""
    with tempfile.TemporaryDirectory() as folder:
        done = mpi_launch.run(abi, 3, [program, "killed"], KILLED_SECONDS, flags, SURVIVORS_FOLDER=folder,
                          ONEBIT_COLLECTIVE_TIMEOUT_MS="20000", ONEBIT_HEARTBEAT_MS="200",
                          ONEBIT_LOSS_TIMEOUT_MS="15000", **MPI)
        texts = [file.read_text() for file in pathlib.Path(folder).iterdir()]
    assert done.returncode != 0 or flags, done
    return [text for text in texts if text]  # one may have been ended before it could write


def kill_a_rank(abi: str, program: str):
    """The launcher ends the others, or they come to an error within their deadline."""
    for flags, least, most_tries in KILL_FLAGS[abi]:
        for _ in range(most_tries):
            texts = survivors(abi, program, flags)
            for text in texts:
                assert "rank 1" in text, text
            if len(texts) >= least:
                break
        assert len(texts) >= least, texts
        print(f"a killed rank {flags}: {len(texts)} survivors", flush=True)


def disagree(abi: str, program: str):
    """Ranks with different settings say so, all of them, and end."""
    launcher, *flags = mpi_launch.launcher(abi)
    parts = [["-np", str(ranks), *mpi_launch.setting(abi, "ONEBIT_MPI_EARLY_BYTES", value), program,
              "library"] for ranks, value in ((1, "4096"), (2, "8192"))]
    done = mpi_launch.start([launcher, *flags, *parts[0], ":", *parts[1]], mpi_launch.HANG_SECONDS, **MPI)
    assert done.returncode != 0, done
    assert "must be equal" in done.stderr, done.stderr
    assert "ignal" not in done.stderr, done.stderr  # that a rank was ended by


def main() -> int:
    abi, program, *only = sys.argv[1:]
    if only == ["large"]:
        mpi_launch.succeed(abi, 2, [program, "large"], 250, **MPI)
        return 0
    for check, (ranks, variables) in CHECKS.items():
        begin = time.monotonic()
        mpi_launch.succeed(abi, ranks, [program, check], **variables)
        print(f"{check}: {time.monotonic() - begin:.1f} s", flush=True)
    output = mpi_launch.succeed(abi, 1, [program, "late_exit"], **MPI)
    assert "late" in output, "an exit handler was cut off"
    disagree(abi, program)
    kill_a_rank(abi, program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
