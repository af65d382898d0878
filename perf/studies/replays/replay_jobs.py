# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a setting on the hosts of perf/lab, and counts the steps of schedules."""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys

from comparison.runner import Runner
from ethernet_lab.errors import LabError, UsageError
from ethernet_lab.rates import FRAME_BYTES, SEGMENT_BYTES
from replays.published_rows import CODECS, DENSE, TOP_K, Measured, Schedule, Setting, Stage

RANK = pathlib.Path(__file__).resolve().parent / "replay_rank.py"
TIMEOUT_SECONDS = 300
HOSTS = {1: 8, 4: 4}  # by the ranks of each
QUICK_HOSTS = 2
SLOW = (DENSE, TOP_K)  # averages that take seconds
STEPS = {True: 4, False: 25}


def package_variables(build: pathlib.Path) -> dict[str, str]:
    """Variables with which Python finds the package of a build."""
    folder, library = build / "bindings" / "python", build / "src" / "libonebit.so"
    for path, target in ((folder / "onebit" / "_native.py", "onebit_python"), (library, "onebit"),
                         (build / "perf" / "onebit_run", "onebit_run"),
                         (build / "perf" / "onebit_schedule", "onebit_schedule")):
        if not path.exists():
            raise UsageError(f"there is no {path}: build target {target}, or give --build")
    return {"PYTHONPATH": str(folder), "ONEBIT_LIBRARY": str(library)}


def schedule_of(runner: Runner, build: pathlib.Path, phases: tuple[str, ...]) -> Schedule:
    """Counts steps by the library's own schedule."""
    counts = []
    for options in phases:
        report = runner.new_files().report
        subprocess.run([str(build / "perf" / "onebit_schedule"), *options.split(), "--volume", "--json", str(report)],
                       check=True, stdout=subprocess.DEVNULL)
        counted = json.loads(report.read_bytes())
        counts.append((counted["last"] - counted["first"] + 1, counted["dense_steps"], counted["compressed_steps"],
                       counted["rounds"]))
    return Schedule(*map(sum, zip(*counts)))


def link_rate(setting: Setting, ranks_per_host: int) -> float:
    """Bits per second of a link in the lab, headers included, on which TCP has the published rate over `shrink`."""
    return setting.gbit * 1e9 * FRAME_BYTES / SEGMENT_BYTES / setting.shrink[ranks_per_host] * setting.hurry


def measure(runner: Runner, build: pathlib.Path, setting: Setting, ranks_per_host: int, is_quick: bool) -> Measured:
    """Re-enacts all stages of a setting. Raises LabError."""
    hosts = QUICK_HOSTS if is_quick else setting.hosts or HOSTS[ranks_per_host]
    shrink, hurry = setting.shrink[ranks_per_host], setting.hurry
    rate = round(link_rate(setting, ranks_per_host))
    files = runner.new_files()
    stages = [{"name": name, "elements": setting.elements // shrink, "codec": CODECS[name],
               "dtype": setting.dense_type if name == DENSE else "float32",
               "sleep": setting.computing[hosts] if hurry == 1 else 0,
               "steps": 1 if is_quick else STEPS[name in SLOW]} for name in setting.stages]
    plan = {"report": str(files.report), "stages": stages}
    print(f"replay: {setting.name}, {hosts} hosts x {ranks_per_host}: {setting.elements // shrink} elements, "
          f"{rate / 1e6:.1f} Mbit/s", file=sys.stderr, flush=True)
    outcome = runner.run(["perf/lab", "run", "--hosts", str(hosts), "--ranks-per-host", str(ranks_per_host),
                          "--rate", f"{rate}bit", "--build", str(build), "--json", str(files.lab), "--",
                          sys.executable, "-B", str(RANK), json.dumps(plan)], files, TIMEOUT_SECONDS, False)
    if outcome.problem or outcome.report is None:
        raise LabError(f"{setting.name}: {outcome.problem or 'rank 0 wrote no report'}")
    return Measured(setting, hosts, ranks_per_host,
                    {name: _stage(ranks, hosts, shrink, hurry, rate) for name, ranks in outcome.report.items()})


def _stage(ranks: list[list[float]], hosts: int, shrink: int, hurry: int, rate: int) -> Stage:
    """A stage from what each rank has measured: replay_rank.run_stage. The first rank's clock counts."""
    _, _, link_bytes, messages, cpu = map(statistics.mean, zip(*ranks))
    link_bytes *= len(ranks) / hosts
    return Stage(hurry * ranks[0][1], shrink * link_bytes, hurry * 8 * link_bytes / rate, cpu, messages)
