# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/replay."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import time

from machine_facts import cores, facts, processor
from comparison.runner import Runner, Stopped, raise_on_signals
from ethernet_lab import namespaces
from ethernet_lab.errors import SIGNAL_STATUS, LabError, UsageError
from ethernet_lab.lab_report import open_json
from replays.published_rows import Measured, Row, published_rows
from replays.replay_jobs import HOSTS, measure, package_variables, schedule_of
from replays.replay_table import Result, row_lines, stage_lines, stages_as_json

DESCRIPTION = """\
Re-enacts published results on the hosts of perf/lab, which takes root: the model is k times smaller than the
published one and the link k times slower, so that averages take as long. Ranks sleep for as long as a published step
computes; averages, their bytes and their messages are real. Prints each published figure, the one here, their
ratio, and why if they differ by more than 15 %.

Exit status: 0 all was measured, 1 something failed, 2 bad usage, 77 this machine cannot have a lab."""


def main(arguments: list[str], root: pathlib.Path) -> int:
    """The whole program. Returns its exit status."""
    options = parse(arguments, root)
    raise_on_signals()
    try:
        return replay(options, root)
    except LabError as error:
        print(f"replay: {error}", file=sys.stderr)
        return error.status
    except Stopped as stop:
        print(f"replay: stopped by {stop}", file=sys.stderr)
        return SIGNAL_STATUS + stop.number


def parse(arguments: list[str], root: pathlib.Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="replay", description=DESCRIPTION, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-per-host", type=_rank_counts, default=list(HOSTS), metavar="N[,N]",
                        help="1 (on 8 hosts), 4 (on 4 hosts), or both, one after the other (1,4)")
    parser.add_argument("--rows", type=_pattern, default=re.compile(""), metavar="REGEX",
                        help="only rows whose paper and text it matches, such as 'LAMB|rounds'")
    parser.add_argument("--quick", action="store_true", help="two hosts, and one step of each kind: a trial")
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release", metavar="DIR",
                        help="build folder with the library, its Python package and tools (build/release)")
    parser.add_argument("--json", metavar="FILE", help="write all figures to it")
    return parser.parse_args(arguments)


def _rank_counts(text: str) -> list[int]:
    counts = [int(count) if count.isdecimal() else 0 for count in text.split(",")]
    if not set(counts) <= HOSTS.keys():
        raise argparse.ArgumentTypeError(f"{text}: it is {' or '.join(map(str, HOSTS))}, or both with a comma between")
    return counts


def _pattern(text: str) -> re.Pattern:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def replay(options: argparse.Namespace, root: pathlib.Path) -> int:
    """Measures what the chosen rows need, and prints and writes them."""
    build = options.build.resolve()
    os.environ |= package_variables(build)
    namespaces.require_support()
    results: list[Result] = []
    with open_json(options.json) as json_file, Runner(root) as runner:
        rows = [row for row in published_rows(lambda phases: schedule_of(runner, build, phases))
                if options.rows.search(f"{row.paper}: {row.what}")]
        if not rows:
            raise UsageError(f"--rows {options.rows.pattern}: no row has such a text")
        for ranks_per_host in options.ranks_per_host:
            results += _results(rows, ranks_per_host, options, runner)
        settings = list({id(result.measured): result.measured for result in results}.values())
        if json_file is not None:
            json_file.write({"format": "onebit-replay", "version": 1, "machine": facts(root, build),
                             "is_quick": options.quick, "rows": [result.as_json() for result in results],
                             "settings": [stages_as_json(measured) for measured in settings]})
    print(f"{processor()}, {cores()} cores, {time.strftime('%Y-%m-%d')}\n")
    for ranks_per_host in options.ranks_per_host:
        print(f"{ranks_per_host} {'rank' if ranks_per_host == 1 else 'ranks'} on each host\n")
        found = [result for result in results if result.measured.ranks_per_host == ranks_per_host]
        print("\n".join(row_lines(found)), end="\n\n")
    print("\n".join(stage_lines(settings)))
    return 0


def _results(rows: list[Row], ranks_per_host: int, options: argparse.Namespace, runner: Runner) -> list[Result]:
    """The rows that are re-enacted with so many ranks on a host; each setting is measured once."""
    measured: dict[str, Measured] = {}
    results = []
    for row in rows:
        setting = row.setting
        if ranks_per_host not in setting.shrink:
            continue
        if setting.name not in measured:
            measured[setting.name] = measure(runner, options.build.resolve(), setting, ranks_per_host, options.quick)
        results.append(Result.of(row, measured[setting.name]))
    return results
