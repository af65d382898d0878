# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/compare, and the comparison from beginning to end."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import time

from comparison import cost, machine
from comparison.links import Cell, Link
from comparison.plan import Plan, Run, Wish, examples, make_plan
from comparison.results import ResumeError, Results, State
from comparison.runner import Runner, Stopped, raise_on_signals
from comparison.sizes import buffer_flags, parse_size, size_text, sweep_flags
from comparison.systems import SYSTEMS, Place, command, missing, shell_text

EXIT_OK, EXIT_FAILED, EXIT_USAGE, SIGNAL_STATUS = 0, 1, 2, 128
MAX_HOSTS = 64
DEFAULT_SIZES = "1K,4K,16K,64K,256K,1M,4M,16M,64M"
DEFAULT_LINKS = "shm,100mbit,1gbit,2.7gbit,10gbit"
DEFAULT_BUDGET_SECONDS = 1500
LAB_PROBE_SECONDS = 20
DEFAULT_PATIENCE_SECONDS = 30
SLOWNESS = 4  # times what was expected, and a command is not late yet
DESCRIPTION = """\
Compares onebit's allreduce with that of Open MPI, MPICH and Gloo, and with a compressed allreduce made of
whole-tensor passes. All sum fp32 numbers, are timed by the same rules, and take turns.

Over shared memory (shm) all ranks are processes of this host; Gloo has no shared memory and uses TCP over
lo. Over the other links each rank is a host of perf/lab, which takes root.

Results go to a JSON file that perf/report draws. It is written after every command, and --resume
continues it. Exit status: 0 whatever was tried was measured, in each repetition, 1 some of it failed (the
file says what and why) or nothing could be tried, 2 usage."""


class UsageError(Exception):
    """The command line makes no sense; the text says why."""


def main(arguments: list[str], root: pathlib.Path) -> int:
    """The whole program. Returns its exit status."""
    options = parse(arguments)
    raise_on_signals()
    try:
        comparison = Comparison(options, root)
        if options.dry_run:
            return comparison.print_plan()
        return comparison.run()
    except (UsageError, ResumeError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"compare: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Stopped as stop:
        print(f"compare: stopped by {stop}", file=sys.stderr)
        return SIGNAL_STATUS + stop.number


def parse(arguments: list[str]) -> argparse.Namespace:
    """Lists are separated by commas."""
    parser = argparse.ArgumentParser(prog="compare", description=DESCRIPTION, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_list(name: str, parse_one, default: str, help_text: str) -> None:
        parser.add_argument(name, type=_list_of(parse_one), default=default, metavar="LIST",
                            help=f"{help_text} ({default})")

    add_list("--links", Link.parse, DEFAULT_LINKS, "shm, or rates of the lab's links")
    add_list("--hosts", _host_count, "2,4,8", "numbers of ranks")
    add_list("--systems", _system, ",".join(SYSTEMS), "which systems")
    add_list("--sizes", parse_size, DEFAULT_SIZES, "messages, in bytes or with K, M")
    parser.add_argument("--repetitions", type=_positive(int), default=3, metavar="N",
                        help="of everything, at most (3)")
    parser.add_argument("--time-budget", type=_positive(float), default=DEFAULT_BUDGET_SECONDS,
                        metavar="SECONDS", help=f"for all of it ({DEFAULT_BUDGET_SECONDS})")
    parser.add_argument("--patience", type=_positive(float), default=DEFAULT_PATIENCE_SECONDS,
                        metavar="SECONDS", help="with a command, beyond "
                        f"{SLOWNESS} times what it should take ({DEFAULT_PATIENCE_SECONDS})")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"),
                        metavar="DIR", help="with the tools (build/release)")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE",
                        help="the JSON file (compare.json in the build folder)")
    parser.add_argument("--resume", action="store_true", help="continue that file")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    parser.add_argument("--verbose", action="store_true", help="a line for every command, not for a "
                        "terminal only")
    return parser.parse_args(arguments)


def _list_of(parse_one):
    def parse_list(text: str) -> list:
        try:
            return list(dict.fromkeys(parse_one(part.strip()) for part in text.split(",")))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return parse_list


def _host_count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MAX_HOSTS:
        raise ValueError(f"{text!r} is no number of hosts from 2 to {MAX_HOSTS}")
    return int(text)


def _system(text: str) -> str:
    if text not in SYSTEMS:
        raise ValueError(f"{text!r} is none of {', '.join(SYSTEMS)}")
    return text


def _positive(kind):
    def parse_number(text: str):
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
        return number
    return parse_number


class Comparison:
    """One run of the program."""

    def __init__(self, options: argparse.Namespace, root: pathlib.Path):
        self._options = options
        self._place = Place(root, options.build, machine.cores(), os.geteuid() == 0)
        self._cells = [Cell(link, hosts) for link in options.links for hosts in options.hosts]
        self._sizes = sorted(options.sizes)
        self._buffers = buffer_flags(self._sizes)
        self._rows = Wish(self._cells, options.systems, self._sizes, options.repetitions).rows()
        self._is_terminal = sys.stderr.isatty()

    def print_plan(self) -> int:
        """What would be run, as a reader would run it."""
        plan = self._make_plan({})
        for run in plan.runs:
            print(self._display(run))
        print(f"# {self._summary(plan)}")
        return EXIT_OK

    def run(self) -> int:
        """Everything, and the file."""
        output = self._options.output or self._place.root / self._options.build / "compare.json"
        if not (self._place.root / self._options.build).is_dir():
            raise UsageError(f"there is no build in {self._options.build}: build it, or give --build")
        if output.exists() != self._options.resume:
            raise UsageError(f"{output} exists: continue it with --resume, or give another --output"
                             if output.exists() else f"there is no {output} to resume")
        settings = {"links": [link.name for link in self._options.links], "hosts": self._options.hosts,
                    "systems": self._options.systems, "sizes": self._sizes,
                    "repetitions": self._options.repetitions, "time-budget": self._options.time_budget}
        facts = machine.facts(self._place.root, self._options.build)
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
            self._clear_line()
            results.save(output, self._rows)
        return self._conclude(results, output)

    def _run_all(self, plan: Plan, results: Results, output: pathlib.Path) -> None:
        begin = time.monotonic()
        todo = [run for run in plan.runs if not results.has(run)]
        shown = examples(plan.runs)
        hung: set[tuple[Cell, str]] = set()
        with Runner(self._place.root) as runner:
            for index, run in enumerate(todo):
                elapsed = time.monotonic() - begin
                if (run.cell, run.system.name) in hung:
                    results.leave_out(run.rows(), State.LEFT_OUT, "left out: the system hung here before")
                    continue
                if elapsed + run.seconds() > self._options.time_budget:
                    results.leave_out(run.rows(), State.LEFT_OUT, f"left out: the time budget of "
                                      f"{self._options.time_budget:.0f} s is spent")
                    continue
                left = sum(later.seconds() for later in todo[index:])
                self._show(f"[{index + 1}/{len(todo)}] {_name(run, plan.repetitions)}; "
                           f"about {min(left, self._options.time_budget - elapsed) / 60:.0f} min left")
                files = runner.new_files()
                outcome = runner.run(self._command(run, files), files,
                                     self._options.patience + SLOWNESS * run.seconds(),
                                     run.system.may_hang)
                results.show_command(run, self._display(run), run is shown[run.kind])
                problem = results.add(run, outcome)
                if problem is not None:
                    self._say(f"{_name(run, plan.repetitions)}: {problem}")
                elif self._options.verbose:
                    self._say(f"{_name(run, plan.repetitions)}: {outcome.seconds:.1f} s "
                              f"({run.seconds():.1f} expected)")
                if outcome.is_timeout:
                    hung.add((run.cell, run.system.name))
                results.save(output, self._rows)

    def _conclude(self, results: Results, output: pathlib.Path) -> int:
        """Says what there is and what there is not. A repetition that failed counts, whatever others gave."""
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
        """Which systems cannot run on which kind of link, and why."""
        absent = {}
        kinds = {link.kind for link in self._options.links}
        for name in self._options.systems:
            reason = missing(SYSTEMS[name], self._place)
            absent.update({(kind, name): reason for kind in kinds if reason is not None})
        if "lab" in kinds:
            reason = self._lab_problem()
            for name in self._options.systems if reason is not None else []:
                absent.setdefault(("lab", name), reason)
        return absent

    def _lab_problem(self) -> str | None:
        """Why there can be no lab; None if there can."""
        try:
            probe = subprocess.run(["perf/lab", "run", "--hosts", "2", "--rate", "1gbit", "--", "true"],
                                   cwd=self._place.root, stdin=subprocess.DEVNULL, capture_output=True,
                                   text=True, timeout=LAB_PROBE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"perf/lab does not work here: {error}"
        if probe.returncode == 0:
            return None
        said = [line for line in probe.stderr.splitlines() if line and not line.startswith("#")]
        return f"perf/lab does not work here: {'; '.join(said) or probe.returncode}"

    def _make_plan(self, absent: dict[tuple[str, str], str]) -> Plan:
        return make_plan(Wish(self._cells, self._options.systems, self._sizes, self._options.repetitions,
                              frozenset(absent)), self._options.time_budget)

    def _sweep(self, run: Run) -> list[str]:
        return [*sweep_flags(list(run.sizes)), *self._buffers, "-n", str(cost.MAX_CALLS), "--row-seconds",
                str(run.row_seconds), "-w", "0", "-c", "1" if run.is_checked else "0", "--no-in-place"]

    def _command(self, run: Run, files) -> list[str]:
        return command(run.system, run.cell, self._sweep(run), self._place, files)

    def _display(self, run: Run) -> str:
        """As a reader would run it."""
        return shell_text(command(run.system, run.cell, self._sweep(run), self._place, None))

    def _summary(self, plan: Plan) -> str:
        text = (f"{len(plan.runs)} commands, {plan.repetitions} repetitions, about "
                f"{plan.seconds() / 60:.1f} of {self._options.time_budget / 60:.1f} minutes")
        if plan.left_out:
            text += f"; {len(plan.left_out)} of {len(self._rows)} rows are too slow and left out"
        return text

    def _show(self, text: str) -> None:
        """On a line that the next one replaces."""
        if self._is_terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def _clear_line(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        self._clear_line()
        print(f"compare: {text}", file=sys.stderr, flush=True)


def _name(run: Run, repetitions: int) -> str:
    sizes = size_text(run.sizes[0]) + (f"-{size_text(run.sizes[-1])}" if len(run.sizes) > 1 else "")
    return (f"{run.cell.link.name}, {run.cell.hosts} ranks, {run.system.name}, {sizes}, repetition "
            f"{run.repetition} of {repetitions}")
