# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Training over processes equals training over threads to the bit: train_processes_test.py TRAIN_TEXT
ONEBIT_RUN"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from short_run import unexpected

LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "ONEBIT_")
SMALL = ["--steps", "20", "--hidden", "32,16", "--batch", "8", "--seed", "5"]
OF_PLACE = {"seconds", "transport"}  # what may differ


class Folder:
    """A text to learn from and a folder for reports."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        self.text = self.path / "text"
        self.text.write_text("".join(f"line {i % 7} of {i % 11}\n" for i in range(2000)))
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(LAUNCHERS)}

    def run(self, *command: str) -> subprocess.CompletedProcess:
        return subprocess.run([*command, "--text", str(self.text)], capture_output=True, text=True,
                              timeout=120, stdin=subprocess.DEVNULL, env=self.environment)

    def report(self, *command: str) -> dict:
        """Returns the JSON report of a run that must succeed."""
        file = self.path / "report.json"
        result = self.run(*command, "--json", str(file))
        assert result.returncode == 0 and unexpected(result.stderr) == "", result
        assert result.stdout.count("held-out loss") + result.stdout.count("diverged") == 1, result
        return json.loads(file.read_text())


def check_same(threads: dict, processes: dict) -> None:
    for report in (threads, processes):
        for evaluation in report["evaluations"]:
            del evaluation["seconds"]
    different = {name for name in threads if threads[name] != processes[name]}
    assert different <= OF_PLACE, (different, threads, processes)
    assert processes["transport"] == "socket" and threads["transport"] == "local"
    seconds = processes["seconds"]
    assert all(seconds[part] >= 0 for part in ("compute", "codec", "wire")), seconds


def main() -> None:
    tool, launcher = sys.argv[1:]
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for ranks in ("3", "4"):
            threads = folder.report(tool, *SMALL, "-t", ranks, "--check-replicas")
            check_same(threads, folder.report(tool, *SMALL, "--procs", ranks, "--check-replicas"))
            check_same(threads, folder.report(launcher, "-n", ranks, tool, *SMALL, "--transport", "socket"))
        for options in (["--optimizer", "adam", "--eval-every", "20"], ["--grad-type", "half", "--mode", "sign"],
                        ["--optimizer", "onebit-lamb"],
                        ["--optimizer", "adam", "--codec", "int2"],
                        ["--optimizer", "zero-one-adam", "--local-step-scaler", "4", "--eval-every", "10"],
                        ["--lr", "1e6", "--warmup", "0"]):  # the last one diverges
            check_same(folder.report(tool, *SMALL, "-t", "2", *options),
                       folder.report(tool, *SMALL, "--procs", "2", *options))

        # Only one rank prints the error, and none waits for it.
        for rank in range(3):
            (folder.path / f"text{rank}").write_text(folder.text.read_text() + "more\n" * (rank == 1))
        own_text = ["sh", "-c", 'exec "$0" --text "$TEXT$RANK" "$@"', tool, *SMALL]
        unequal = subprocess.run([launcher, "-n", "3", *own_text], capture_output=True, text=True,
                                 timeout=120, stdin=subprocess.DEVNULL,
                                 env=folder.environment | {"TEXT": str(folder.text)})
        assert unequal.returncode == 1, unequal
        assert unequal.stderr.count("rank 1 has a different text from rank 0") == 1, unequal
        missing = folder.run(launcher, "-n", "3", tool, *SMALL, "--json", "/nonexistent/x.json")
        assert missing.returncode in (1, 2) and missing.stderr.count("/nonexistent/x.json") == 1, missing
        for command, text in (([tool, "--procs", "2", "-t", "2"], "leave out -t"),
                              ([tool, "--procs", "2", "--transport", "local"], "or use socket"),
                              ([tool, "--transport", "ucx"], "--procs N"),
                              ([launcher, "-n", "2", tool, "--procs", "2"], "leave out --procs")):
            wrong = folder.run(*command)
            assert wrong.returncode == 2 and wrong.stderr.count(text) == 1, wrong


if __name__ == "__main__":
    main()
