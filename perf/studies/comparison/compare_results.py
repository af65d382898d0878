# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Measurements and their file. It is rewritten after every command and always complete, so a comparison
that is cut short can be read and continued."""

from __future__ import annotations

import enum
import json
import os
import pathlib
import statistics

from comparison.compare_plan import Row, Run
from comparison.runner import Outcome
from comparison.compared_systems import SYSTEMS

FORMAT, VERSION = "onebit-compare", 1


class State(enum.Enum):
    """The outcome of a row."""

    MEASURED = "measured"
    FAILED = "failed"      # tried, and there is no result, or a wrong one
    LEFT_OUT = "left out"  # not tried: there was no time, or the system hung before
    ABSENT = "absent"      # the system, or the lab, cannot be had here


class ResumeError(Exception):
    """The file belongs to another comparison; the text says what differs."""


class Results:
    """Samples of all repetitions, and the medians made of them."""

    def __init__(self, machine: dict, settings: dict):
        self.machine = machine
        self.settings = settings  # what was asked for; another comparison cannot continue this one
        self.commands: dict[str, dict[str, str]] = {}  # by kind of link, then by system
        self.samples: list[dict] = []
        self.failures: list[dict] = []
        self.runs: list[list] = []  # keys of commands that succeeded
        # Reasons why rows are not measured, or not in each repetition. A failure takes precedence over
        # a row that was not tried.
        self.errors: dict[Row, tuple[State, str]] = {}
        self._failed_repetitions: dict[Row, int] = {}

    @staticmethod
    def resume(path: pathlib.Path, machine: dict, settings: dict) -> Results:
        """Continues an earlier run of the same comparison. Its failures are tried again."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found = Results(content["machine"], content["settings"])
            found.commands, found.runs = content["commands"], content["runs"]
            found.samples = [sample for sample in content["samples"] if _is_of(sample, found.runs)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResumeError(f"{path} is not the file of a comparison: {error!r}") from error
        for name in ("cpu", "cores", "commit", "compiler"):
            if found.machine.get(name) != machine[name]:
                raise ResumeError(f"{path} has {name} {found.machine.get(name)!r}, here it is "
                                  f"{machine[name]!r}: figures of both cannot be compared")
        for name, value in settings.items():
            if found.settings.get(name) != value:
                raise ResumeError(f"{path} was begun with --{name} {found.settings.get(name)}, not {value}")
        return found

    def has(self, run: Run) -> bool:
        """True if the run was made and succeeded."""
        return run.key in self.runs

    def add(self, run: Run, outcome: Outcome) -> str | None:
        """Adds the outcome of a run. Returns what was wrong with it."""
        reported = {row.get("size"): row for row in (outcome.report or {}).get("results", [])}
        lacking = [row for row in run.rows() if row.size not in reported]
        for row in run.rows():
            if row.size in reported:
                self.samples.append(self._sample(run, row, reported[row.size], outcome))
        problem = outcome.problem or ("the report lacks sizes" if lacking else None)
        if problem is None:
            self.runs.append(run.key)
            return None
        self.failures.append({"run": run.key, "error": problem})
        for row in lacking or run.rows():  # where each has its figures, any of them may be the culprit
            self.errors[row] = (State.FAILED, problem)
            self._failed_repetitions[row] = self._failed_repetitions.get(row, 0) + 1
        return problem

    def show_command(self, run: Run, text: str, is_example: bool) -> None:
        """Keeps the text of a command that was run, preferably an example."""
        kind, system = run.kind
        of_kind = self.commands.setdefault(kind, {})
        if is_example or system not in of_kind:
            of_kind[system] = text

    def leave_out(self, rows: list[Row], state: State, reason: str) -> None:
        """Leaves out rows, unless something better is known of them."""
        for row in rows:
            self.errors.setdefault(row, (state, reason))

    def save(self, path: pathlib.Path, rows: list[Row]) -> None:
        """Replaces the file atomically."""
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(self.as_json(rows), indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)

    def as_json(self, rows: list[Row]) -> dict:
        """Results of the rows about which something is known, in order."""
        by_row: dict[tuple, list[dict]] = {}
        for sample in self.samples:
            key = tuple(sample[name] for name in ("rate", "hosts", "ranks_per_host", "system", "size"))
            by_row.setdefault(key, []).append(sample)
        results = []
        for row in rows:
            cell = row.cell
            samples = by_row.get((cell.link.rate, cell.hosts, cell.ranks_per_host, row.system, row.size), [])
            if samples or row in self.errors:
                results.append(self._result(row, samples))
        return {"format": FORMAT, "version": VERSION, "machine": self.machine, "results": results,
                "commands": self.commands, "settings": self.settings, "samples": self.samples,
                "runs": self.runs, "failures": self.failures}

    @staticmethod
    def _sample(run: Run, row: Row, measured: dict, outcome: Outcome) -> dict:
        wrong = [measured[place]["nwrong"] for place in ("out_of_place", "in_place")]
        calls = measured["actual_iterations"] + measured["untimed_calls"]
        link_bytes = None
        # Counts everything from the start of the command to its end as the interface sees it: headers,
        # acknowledgements, and what ranks exchange before and between calls. A run of several sizes, or
        # with checks, contains other calls as well.
        if outcome.lab is not None and len(run.sizes) == 1 and not run.is_checked:
            link_bytes = round(max(link["sent_bytes"] for link in outcome.lab["links"]) / calls)
        return {**_columns_of(row), "repetition": run.repetition,
                "time_us": measured["out_of_place"]["time"], "calls": measured["actual_iterations"],
                "wire_bytes": measured["wire_bytes"], "link_bytes": link_bytes,
                "levels": measured["levels"] if run.system.launcher == "onebit" else None,
                "rel_error": measured["rel_error"],
                "nwrong": None if None in wrong else sum(wrong), "was_ended": outcome.was_ended}

    def _result(self, row: Row, samples: list[dict]) -> dict:
        times = [sample["time_us"] for sample in samples]
        known = {name: [sample[name] for sample in samples if sample[name] is not None]
                 for name in ("calls", "wire_bytes", "levels", "rel_error", "nwrong")}
        # Joining puts bytes on the links, too. They weigh least in the repetition with most calls.
        counted = max((sample for sample in samples if sample["link_bytes"] is not None),
                      key=lambda sample: sample["calls"], default={"link_bytes": None})
        wrong = sum(known["nwrong"]) if known["nwrong"] else None
        state, error = (State.MEASURED, None) if samples else self.errors[row]
        inexact = max(known["rel_error"], default=0)
        bound = SYSTEMS[row.system].max_error
        if wrong:
            state, error = State.FAILED, f"{wrong} wrong elements"
        elif not inexact <= bound:
            state, error = State.FAILED, f"the relative error {inexact:.3g} is above {bound:g}"
        failed = self._failed_repetitions.get(row, 0)
        return {**_columns_of(row),
                "time_us": statistics.median(times) if times else None,
                "time_us_min": min(times, default=None),
                "time_us_max": max(times, default=None),
                "repetitions": len(times),
                "calls": min(known["calls"], default=0),
                "wire_bytes": max(known["wire_bytes"], default=None),
                "link_bytes": counted["link_bytes"],
                "levels": max(known["levels"], default=None),
                "rel_error": statistics.median(known["rel_error"]) if known["rel_error"] else None,
                "nwrong": wrong,
                "error": error,
                "state": state.value,
                "failed_repetitions": failed,
                "failure": self.errors[row][1] if failed else None}


def _is_of(sample: dict, runs: list[list]) -> bool:
    """True if the sample came from one of these commands."""
    key = [sample["rate"] or "shm", *(sample[name] for name in ("hosts", "ranks_per_host", "system", "repetition"))]
    return any(run[:-1] == key and sample["size"] in run[-1] for run in runs)


def _columns_of(row: Row) -> dict:
    link = row.cell.link
    return {"link": link.kind, "rate": link.rate, "rate_bits_per_second": link.rate_bits_per_second,
            "hosts": row.cell.hosts, "ranks_per_host": row.cell.ranks_per_host, "system": row.system,
            "size": row.size}
