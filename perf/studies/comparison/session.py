# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""One comparison from beginning to end: what can be run, in which order, and with what outcome."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import time

import machine_facts
from comparison import cost
from comparison.links import Cell, layout_text
from comparison.compare_plan import Plan, Run, PlanRequest, examples, make_plan
from comparison.compare_progress import Progress
from comparison.compare_results import Results, State
from comparison.runner import Runner
from comparison.sizes import buffer_flags, size_text, sweep_flags
from comparison.compared_systems import SYSTEMS, Checkout, command, lab_build, missing, shell_text

EXIT_OK, EXIT_FAILED = 0, 1
LAB_PROBE_SECONDS = 20
SLOWNESS = 4  # times what was expected, and a command is not late yet


class UsageError(Exception):
    """The command line makes no sense; the text says why."""


class Comparison:
    """One run of the program."""

    def __init__(self, options: argparse.Namespace, root: pathlib.Path):
        self._options = options
        self._checkout = Checkout(root, options.build, machine_facts.cores(), os.geteuid() == 0)
        self._cells = [Cell(link, hosts, options.ranks_per_host)
                       for link in options.links for hosts in options.hosts]
        self._sizes = sorted(options.sizes)
        self._buffers = buffer_flags(self._sizes)
        self._rows = PlanRequest(self._cells, options.systems, self._sizes, options.repetitions).rows()
        self._progress = Progress()

    def print_plan(self) -> int:
        """Prints the commands that would be run, as a reader would run them."""
        plan = self._make_plan({})
        for run in plan.runs:
            print(self._display(run))
        print(f"# {self._summary(plan)}")
        return EXIT_OK

    def run(self) -> int:
        """Runs everything and writes the file."""
        output = self._options.output or self._checkout.root / self._options.build / "compare.json"
        if not (self._checkout.root / self._options.build).is_dir():
            raise UsageError(f"there is no build in {self._options.build}: build it, or give --build")
        if output.exists() != self._options.resume:
            raise UsageError(f"{output} exists: continue it with --resume, or give another --output"
                             if output.exists() else f"there is no {output} to resume")
        settings = {"links": [link.name for link in self._options.links], "hosts": self._options.hosts,
                    "ranks-per-host": self._options.ranks_per_host, "systems": self._options.systems,
                    "sizes": self._sizes, "repetitions": self._options.repetitions,
                    "time-budget": self._options.time_budget}
        facts = machine_facts.facts(self._checkout.root, self._options.build)
        results = Results.resume(output, facts, settings) if self._options.resume else \
            Results(facts, settings)
        absent = self._absent()
        plan = self._make_plan(absent)
        print(f"compare: {self._summary(plan)}", file=sys.stderr, flush=True)
        results.leave_out(plan.left_out, State.LEFT_OUT,
                          f"left out: slow, and all of it must fit in {self._options.time_budget:.0f} s "
                          "(--time-budget)")
        for row in self._rows:
            if (row.cell.link.kind, row.system) in absent:
                results.leave_out([row], State.ABSENT, absent[row.cell.link.kind, row.system])
        results.save(output, self._rows)
        try:
            self._run_all(plan, results, output)
        finally:
            self._progress.clear_line()
            results.save(output, self._rows)
        return self._conclude(results, output)

    def _run_all(self, plan: Plan, results: Results, output: pathlib.Path) -> None:
        begin = time.monotonic()
        pending = [run for run in plan.runs if not results.has(run)]
        shown = examples(plan.runs)
        hung: set[tuple[Cell, str]] = set()
        with Runner(self._checkout.root) as runner:
            for index, run in enumerate(pending):
                elapsed = time.monotonic() - begin
                if (run.cell, run.system.name) in hung:
                    results.leave_out(run.rows(), State.LEFT_OUT, "left out: the system hung here before")
                    continue
                if elapsed + run.seconds() > self._options.time_budget:
                    results.leave_out(run.rows(), State.LEFT_OUT, f"left out: the time budget of "
                                      f"{self._options.time_budget:.0f} s is spent")
                    continue
                left = sum(later.seconds() for later in pending[index:])
                self._progress.show(f"[{index + 1}/{len(pending)}] {_name(run, plan.repetitions)}; "
                           f"about {min(left, self._options.time_budget - elapsed) / 60:.0f} min left")
                files = runner.new_files()
                outcome = runner.run(self._command(run, files), files,
                                     self._options.patience + SLOWNESS * run.seconds(),
                                     run.system.may_hang)
                results.show_command(run, self._display(run), run is shown[run.kind])
                problem = results.add(run, outcome)
                if problem is not None:
                    self._progress.say(f"{_name(run, plan.repetitions)}: {problem}")
                elif self._options.verbose:
                    self._progress.say(f"{_name(run, plan.repetitions)}: {outcome.seconds:.1f} s "
                              f"({run.seconds():.1f} expected)")
                if outcome.is_timeout:
                    hung.add((run.cell, run.system.name))
                results.save(output, self._rows)

    def _conclude(self, results: Results, output: pathlib.Path) -> int:
        """Prints what was measured and what was not. A failed repetition counts as a failure, even if
        others succeeded."""
        entries = results.as_json(self._rows)["results"]
        counts = collections.Counter(State(entry["state"]) for entry in entries)
        texts = [f"{counts[state]} {state.value}" for state in State if state in counts]
        print(f"compare: rows: {', '.join(texts)}; {len(results.failures)} commands failed; {output}",
              file=sys.stderr)
        reasons: dict[str, list[str]] = {}
        for entry in entries:
            for reason in dict.fromkeys((entry["error"], entry["failure"])):
                if reason is not None:
                    reasons.setdefault(reason, []).append(entry["system"])
        for reason, systems in reasons.items():
            print(f"compare: {len(systems)} rows of {', '.join(dict.fromkeys(systems))}: {reason}",
                  file=sys.stderr)
        if results.failures or counts[State.FAILED] or not counts[State.MEASURED]:
            return EXIT_FAILED
        return EXIT_OK

    def _absent(self) -> dict[tuple[str, str], str]:
        """The systems that cannot run on a kind of link, with the reasons."""
        absent = {}
        kinds = {link.kind for link in self._options.links}
        for name in self._options.systems:
            reason = missing(SYSTEMS[name], self._checkout)
            absent.update({(kind, name): reason for kind in kinds if reason is not None})
        if "lab" in kinds:
            reason = self._lab_problem()
            for name in self._options.systems if reason is not None else []:
                absent.setdefault(("lab", name), reason)
        return absent

    def _lab_problem(self) -> str | None:
        """Why there can be no lab; None if there can."""
        try:
            probe = subprocess.run(["perf/lab", "run", "--hosts", "2", "--rate", "1gbit",
                                    *lab_build(self._checkout), "--", "true"], cwd=self._checkout.root,
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                   timeout=LAB_PROBE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"perf/lab does not work here: {error}"
        if probe.returncode == 0:
            return None
        said = [line for line in probe.stderr.splitlines() if line and not line.startswith("#")]
        return f"perf/lab does not work here: {'; '.join(said) or probe.returncode}"

    def _make_plan(self, absent: dict[tuple[str, str], str]) -> Plan:
        request = PlanRequest(self._cells, self._options.systems, self._sizes, self._options.repetitions,
                              frozenset(absent))
        return make_plan(request, self._options.time_budget)

    def _sweep(self, run: Run) -> list[str]:
        return [*sweep_flags(list(run.sizes)), *self._buffers, "-n", str(cost.MAX_CALLS), "--row-seconds",
                str(run.row_seconds), "-w", "0", "-c", "1" if run.is_checked else "0", "--no-in-place"]

    def _command(self, run: Run, files) -> list[str]:
        return command(run.system, run.cell, self._sweep(run), self._checkout, files)

    def _display(self, run: Run) -> str:
        """The command as a reader would run it."""
        return shell_text(command(run.system, run.cell, self._sweep(run), self._checkout, None))

    def _summary(self, plan: Plan) -> str:
        ranks = layout_text(self._options.hosts, self._options.ranks_per_host)
        text = (f"{len(plan.runs)} commands for {ranks}, {plan.repetitions} repetitions, about "
                f"{plan.seconds() / 60:.1f} of {self._options.time_budget / 60:.1f} minutes")
        if plan.left_out:
            text += f"; {len(plan.left_out)} of {len(self._rows)} rows are too slow and left out"
        return text


def _name(run: Run, repetitions: int) -> str:
    sizes = size_text(run.sizes[0]) + (f"-{size_text(run.sizes[-1])}" if len(run.sizes) > 1 else "")
    return (f"{run.cell.link.name}, {run.cell.layout}, {run.system.name}, {sizes}, repetition "
            f"{run.repetition} of {repetitions}")
