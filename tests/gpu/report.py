# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The report of tests/gpu/run: a row for each part, of the last call that had to do with it."""

import json
import pathlib
import time

FORMAT = 3  # of report.json; another one is not read
BUILD = "build"
STATUSES = ("passed", "failed", "skipped", "not run")
OUTPUT_BYTES = 200_000  # kept of a program's output, from its end


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def short(figures: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items()
                     if isinstance(value, (int, float)) or (isinstance(value, list) and value and
                                                            isinstance(value[0], float)))


def _rows_of(path: pathlib.Path) -> list[dict]:
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    return report["parts"] if isinstance(report, dict) and report.get("format") == FORMAT else []


class Report:
    """report.json, report.txt and output.txt in `folder`: few files, so that all of them come back from a
    machine that is lent. Rows that are there stay until their part has a new one."""

    def __init__(self, folder: pathlib.Path, about: dict, order: list[str], is_fresh: bool):
        self._folder, self._order = folder, [BUILD, *order]
        rows = [] if is_fresh else _rows_of(folder / "report.json")
        self._content = {"format": FORMAT, "machine": about, "parts": rows}
        if is_fresh:
            (folder / "output.txt").unlink(missing_ok=True)

    def commit_of_build(self) -> str:
        """That of the programs which are there, as far as it is known."""
        built = [row["commit"] for row in self._content["parts"]
                 if row["name"] == BUILD and row["status"] == "passed"]
        return built[0] if built else self._content["machine"]["commit"]

    def add(self, row: dict, commit: str, logs: list[pathlib.Path]) -> None:
        """Writes whole reports: whoever ends this program has what was done. Output is appended."""
        gpus = self._content["machine"]["gpus"]
        row = row | {"commit": commit, "gpus": f"{len(gpus)} x {gpus[0]}"}
        others = [other for other in self._content["parts"]
                  if other["name"] != row["name"] and other["name"] in self._order]
        self._content["parts"] = sorted([*others, row], key=lambda row: self._order.index(row["name"]))
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / "output.txt", "ab") as output:
            for log in logs:
                output.write(f"==== {log.name}, {row['name']} of {row['started']}\n".encode())
                output.write(log.read_bytes()[-OUTPUT_BYTES:] + b"\n")
        for name, text in (("report.json", json.dumps(self._content, indent=1)),
                           ("report.txt", self.summary())):
            unfinished = self._folder / f"{name}.new"
            unfinished.write_text(text + "\n")
            unfinished.replace(self._folder / name)

    def summary(self) -> str:
        about, rows = self._content["machine"], self._content["parts"]
        gpus = f"{len(about['gpus'])} x {about['gpus'][0]}"
        nccl = about["nccl"] or {"version": "none", "path": ""}
        lines = [
            f"commit    {about['commit']}",
            f"GPU       {gpus}, driver {about['driver']}",
            f"CUDA      {about['cuda_of_driver']} of the driver, {about['cuda_of_toolkit']} of the toolkit",
            f"NCCL      {nccl['version']} {nccl['path']}",
            "",
        ]
        for row in rows:
            lines.append(f"{row['status']:8} {row['name']:10} {row['seconds']:6.1f} s  {row['started']}  "
                         f"{short(row['figures'])}".rstrip())
            if row["commit"] != about["commit"]:
                lines.append(f"    commit {row['commit']}")
            if row["gpus"] != gpus:
                lines.append(f"    on {row['gpus']}")
            lines += [f"    {line}" for line in [*row["detail"].splitlines(), *row["table"]]]
        counts = {status: sum(row["status"] == status for row in rows) for status in STATUSES}
        lines += ["", ", ".join(f"{number} {status}" for status, number in counts.items())]
        if waiting := [row["name"] for row in rows if row["status"] == "not run" and row["name"] != BUILD]:
            lines.append(f"go on with: tests/gpu/run {' '.join(waiting)}")
        return "\n".join(lines)
