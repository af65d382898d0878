# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The soak as a tool: its report, its usage, a round alone, and a rank that dies.

    soak_tool_test.py SOAK local [ucx]     over threads, and over processes
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from waiting import pid_of_rank  # noqa: E402

LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "ONEBIT_")
SMALL = ["--max-elements", "4K", "--seed", "3", "--deadline", "20"]
WAYS = {"local": ["-t", "3"], "socket": ["--procs", "3"]}
WRONG = {
    (): "--seconds N",
    ("--seconds", "0"): "--seconds",
    ("--rounds", "-1"): "--rounds",
    ("--rounds", "1", "-t", "17"): "--threads",
    ("--rounds", "1", "--max-elements", "x"): "--max-elements",
    ("--rounds", "1", "--procs", "2", "-t", "2"): "leave out -t",
    ("--rounds", "1", "--json", "/nonexistent/folder/x.json"): "/nonexistent/folder/x.json",
}


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=100,
                          stdin=subprocess.DEVNULL, env=clean())


def report(folder: str, *command: str) -> dict:
    """Returns the JSON report of a run that must succeed."""
    file = pathlib.Path(folder, "report.json")
    result = run(*command, "--json", str(file))
    assert result.returncode == 0 and result.stderr == "", result
    assert "communicators" in result.stdout and "\r" not in result.stdout, result
    report = json.loads(file.read_text())
    file.unlink()
    return report


def check(first: dict, rounds: int, ranks: int) -> None:
    assert first["rounds"] == rounds and first["nranks"] == ranks and first["error"] is None, first
    assert first["calls"]["compressed"] > 0 and first["other_actions"]["split"] >= rounds, first
    assert len(first["ranks"]) == ranks and first["ranks"][0]["rss_end"] > 0, first
    assert first["wire_bytes"] == sum(rank["wire_bytes"] for rank in first["ranks"]) > 0, first


def check_killed(soak: str) -> None:
    """If a rank dies in the middle of a round, no other rank waits for it. One that dies between two
    communicators is missed only when the next one is made, which the launcher does not wait for."""
    for tries in range(5):
        job = subprocess.Popen([soak, *SMALL, "--procs", "3", "--seconds", "90"], env=clean(), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        pid = pid_of_rank(job.pid, 1)
        time.sleep(1 + tries)  # no event tells of the middle of a round
        os.kill(pid, signal.SIGKILL)
        _, errors = job.communicate(timeout=60)
        assert job.returncode == 128 + signal.SIGKILL, (job.returncode, errors)
        if "round " in errors:
            break
    assert "round " in errors and "repeat it with: soak --seed 3" in errors, errors


def counts(report: dict) -> tuple:
    return report["calls"], report["other_actions"], report["communicators"], report["logical_bytes"]


def main() -> None:
    soak, ways = sys.argv[1], [WAYS[name] for name in sys.argv[2:]]
    for options, text in WRONG.items():
        wrong = run(soak, *options)
        assert wrong.returncode == 2 and text in wrong.stderr and wrong.stdout == "", (options, wrong)
    with tempfile.TemporaryDirectory() as folder:
        of_ways = []
        for ranks in ways:
            long = report(folder, soak, *SMALL, *ranks, "--rounds", "4")
            check(long, 4, 3)
            of_ways.append(counts(long))
            # Rounds do not depend on those before them.
            first = report(folder, soak, *SMALL, *ranks, "--rounds", "3")
            last = report(folder, soak, *SMALL, *ranks, "--rounds", "1", "--first-round", "3")
            for kind, calls in long["calls"].items():
                assert calls == first["calls"][kind] + last["calls"][kind], (kind, long, first, last)
        if "socket" in sys.argv[2:]:
            check_killed(soak)
        assert all(of_way == of_ways[0] for of_way in of_ways), of_ways


if __name__ == "__main__":
    main()
