# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs 3 checked ranks of each baseline under its launcher: baseline_programs_test.py ONEBIT_RUN
PROGRAM...

Ends with 77 if launchers are missing and nothing could be tried.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RANKS = 3
ROW_KEYS = {"device", "size", "count", "type", "redop", "root", "out_of_place", "in_place", "actual_iterations",
            "untimed_calls", "experiment_name", "mode", "codec", "block", "transport", "nranks",
            "levels", "wire_bytes", "wire_bytes_bound", "rel_error", "speedup_vs_dense"}
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}

OPEN_MPI = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "--mca", "btl", "self,vader", "--mca", "pml", "ob1"]


def launchers(onebit_run: str) -> dict[str, list[str]]:
    return {"allreduce_openmpi": OPEN_MPI, "allreduce_multipass": OPEN_MPI,
            "allreduce_mpich": ["mpiexec.mpich"], "allreduce_gloo": [onebit_run]}


def run(command: list[str]) -> subprocess.CompletedProcess:
    print(" ".join(command), flush=True)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)


def check_sweep(launcher: list[str], program: str) -> None:
    """Checks table and report, with no wrong element, for sizes that do not divide evenly as well."""
    name = pathlib.Path(program).name
    with tempfile.TemporaryDirectory() as folder:
        report_path = pathlib.Path(folder) / "out.json"
        done = run([*launcher, "-n", str(RANKS), program, "-b", "0", "-e", "400004", "-i", "100001", "-n", "4",
                    "-c", "1", "-J", str(report_path)])
        assert done.returncode == 0, done
        report = json.loads(report_path.read_text())
    rows = report["results"]
    assert [row["size"] for row in rows] == [0, 100000, 200000, 300000, 400004], rows
    assert report["out_of_bounds"] == {"count": 0, "okay": "true"} and report["errors"] == [], report
    assert len({device["pid"] for device in report["config"]["devices"]}) == RANKS, report
    is_dense = name != "allreduce_multipass"
    for row in rows:
        assert set(row) == ROW_KEYS, row
        assert row["out_of_place"]["nwrong"] == 0 and row["in_place"]["nwrong"] == 0, row
        assert row["out_of_place"]["time"] > 0 and row["in_place"]["time"] > 0, row
        assert row["nranks"] == RANKS and row["wire_bytes"] is None, row
        assert row["mode"] == ("dense" if is_dense else "multipass"), row
        assert row["actual_iterations"] == 4, row
        if row["count"] > 0:
            assert (row["rel_error"] < 1e-6) if is_dense else (0.4 < row["rel_error"] < 1.2), row
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [int(line[0]) for line in lines] == [row["size"] for row in rows], done.stdout
    assert all(len(line) == 17 for line in lines), done.stdout  # the columns of all_reduce_perf
    assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout


def check_usage(launcher: list[str], program: str) -> None:
    wrong = run([*launcher, "-n", "2", program, "-b", "4X"])
    assert wrong.returncode == 2 and wrong.stderr.count("'4X' is not a size") == 1, wrong


def check_rank_of_somebody_else(launcher: list[str], program: str) -> None:
    """The variables of another job's launcher must not confuse ranks of MPI."""
    for rank in ("0", "1"):
        wrong = run(["env", f"RANK={rank}", *launcher, "-n", "2", program, "-b", "4X"])
        assert wrong.returncode == 2 and wrong.stderr.count("'4X' is not a size") == 1, wrong


def check_size_beyond_the_system(launcher: list[str], program: str) -> None:
    """The limit is known only after the system has started; the error is printed once, before the
    system ends. Gloo has one rank: of two, the speaking one may be killed as soon as the other
    misses it."""
    ranks = "1" if program.endswith("gloo") else "2"
    wrong = run([*launcher, "-n", ranks, program, "-b", "4", "-e", "16G", "-f", "2"])
    text = "-e 17179869184: a call of this system takes 2147483647 elements at most"
    assert wrong.returncode == 2 and wrong.stderr.count(text) == 1, wrong


def check_foreign_launcher(program: str, other: list[str]) -> None:
    """Under a foreign launcher each process would be rank 0 of 1 and measure nothing."""
    alone = run([*other, "-n", "2", program, "-b", "1K", "-e", "1K"])
    assert alone.returncode == 1 and "another MPI's mpirun" in alone.stderr, alone


def check_no_launcher(program: str) -> None:
    alone = subprocess.run([program], capture_output=True, text=True, timeout=60, env={})
    assert alone.returncode == 2 and "RANK is not set" in alone.stderr, alone


def main() -> int:
    onebit_run, *programs = sys.argv[1:]
    tried = 0
    for program in programs:
        name = pathlib.Path(program).name
        launcher = launchers(onebit_run)[name]
        if shutil.which(launcher[0]) is None:
            print(f"{name} is left out: {launcher[0]} is not installed")
            continue
        tried += 1
        check_sweep(launcher, program)
        check_usage(launcher, program)
        check_size_beyond_the_system(launcher, program)
        if name == "allreduce_mpich" and shutil.which(OPEN_MPI[0]):
            check_foreign_launcher(program, OPEN_MPI)
        if name == "allreduce_openmpi" and shutil.which("mpiexec.mpich"):
            check_foreign_launcher(program, ["mpiexec.mpich"])
        if name != "allreduce_gloo":
            check_rank_of_somebody_else(launcher, program)
        else:
            check_no_launcher(program)
    return 0 if tried > 0 else 77


if __name__ == "__main__":
    sys.exit(main())
