# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs every fault several times, and makes the table of README.md of what came of them.

    table.py --matrix PROGRAM --rank PROGRAM --plugins PATH --folder FOLDER [--repeat N] [--write]

Writes FOLDER/faults.md and fails if anything was not as it must be, or if a row, but for its times,
is not that of the README. --write puts the table into the README instead.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

import fault_job

README = pathlib.Path(__file__).resolve().parent / "README.md"
BEGIN = "<!-- table.py: from here -->\n"
END = "<!-- table.py: to here -->\n"
TRANSPORTS = {"local": ("local", {}),
              "socket": ("socket", {}),
              "socket, tcp": ("socket", {"ONEBIT_SOCKET_SHARED_MEMORY": "0"}),
              "ucx": ("ucx", {})}
MATRIX_SECONDS = 1200
HEAD = ["fault", "call", *(f"{name}, ms" for name in TRANSPORTS), "outcome", "named", "residuals",
        "recovered"]
TIMES = slice(2, 2 + len(TRANSPORTS))


class Rows:
    """What came of all runs, by fault and kind of call."""

    def __init__(self):
        self._rows: dict[tuple[str, str], dict] = {}

    def add(self, fault: str, call: str, transport: str, report: dict):
        row = self._rows.setdefault((fault, call), {"times": {}, "facts": {}})
        if report["detection_ms"] is not None:
            row["times"].setdefault(transport, []).append(report["detection_ms"])
        for name in HEAD[TIMES.stop:]:
            row["facts"].setdefault(name, set()).add(report[name])

    def cells(self) -> list[list[str]]:
        lines = []
        for (fault, call), row in self._rows.items():
            times = [f"{statistics.median(row['times'][name]):.1f}" if name in row["times"] else ""
                     for name in TRANSPORTS]
            facts = [" or ".join(sorted(row["facts"][name])) for name in HEAD[TIMES.stop:]]
            lines.append([fault, call, *times, *facts])
        return lines


def run_matrix(program: str, name: str, rows: Rows) -> list[str]:
    """What was not as it must be."""
    transport, variables = TRANSPORTS[name]
    done = subprocess.run([program, transport], env=os.environ | variables, text=True, check=False,
                          stdout=subprocess.PIPE, timeout=MATRIX_SECONDS)
    violations = []
    for line in done.stdout.splitlines():
        report = json.loads(line)
        rows.add(report["fault"], report["call"].split(",")[0], name, report)
        case = f"{report['fault']} over {name}, {report['call']}, {report['size']}, {report['place']}"
        violations += [f"{case}: {violation}" for violation in report["violations"]]
    if done.returncode != 0 and not violations:
        violations.append(f"{program} {name} ended with {done.returncode}")
    return violations


def run_kills(programs: fault_job.Programs, transport: str, rows: Rows) -> list[str]:
    """What was not as it must be."""
    violations = []
    for case in fault_job.all_cases():
        try:
            seconds = fault_job.check(programs, case)
        except AssertionError as error:
            violations.append(str(error))
            continue
        name = "SIGKILL" if case.how == signal.SIGKILL else "SIGSTOP"
        rows.add(name, case.mode, transport,
                 {"detection_ms": 1000 * seconds, "outcome": "error", "named": "the rank",
                  "residuals": "none" if case.mode == "dense" else "whole",
                  "recovered": "yes, without the rank"})
    return violations


def markdown(lines: list[list[str]]) -> str:
    rule = ["---", "---", *["---:"] * len(TRANSPORTS)] + ["---"] * (len(HEAD) - TIMES.stop)
    return "".join("| " + " | ".join(line) + " |\n" for line in [HEAD, rule, *lines])


def without_times(table: str) -> list[list[str]]:
    lines = []
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        lines.append([*cells[:TIMES.start], *cells[TIMES.stop:]])
    return lines


def parts_of_readme() -> tuple[str, str, str]:
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    table, after = rest.split(END)
    return before + BEGIN, table, END + after


def differences(old: str, new: str) -> list[str]:
    before, now = without_times(old), without_times(new)
    return ([f"README.md lacks {row}" for row in now if row not in before] +
            [f"README.md has {row}, which was not seen" for row in before if row not in now])


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("matrix", "rank", "plugins", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    os.environ["ONEBIT_PLUGIN_PATH"] = arguments.plugins
    programs = {name: fault_job.Programs(arguments.rank, transport, variables)
                for name, (transport, variables) in TRANSPORTS.items() if transport != "local"}
    rows, violations = Rows(), []
    for _ in range(arguments.repeat):
        for name in TRANSPORTS:
            violations += run_matrix(arguments.matrix, name, rows)
        for name, program in programs.items():
            violations += run_kills(program, name, rows)
    table = markdown(rows.cells())
    pathlib.Path(arguments.folder, "faults.md").write_text(table, encoding="utf-8")
    before, old, after = parts_of_readme()
    if arguments.write and not violations:
        README.write_text(before + table + after, encoding="utf-8")
    elif not arguments.write:
        violations += differences(old, table)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
