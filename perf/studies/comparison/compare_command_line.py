# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/compare."""

from __future__ import annotations

import argparse
import pathlib
import sys

from comparison.links import Link
from comparison.compare_results import ResumeError
from comparison.runner import Stopped, raise_on_signals
from comparison.session import EXIT_FAILED, SLOWNESS, Comparison, UsageError
from comparison.sizes import parse_size
from comparison.compared_systems import DEFAULT_BUILD, SYSTEMS
from ethernet_lab.lab_command_line import MAX_HOSTS, MAX_RANKS_PER_HOST

EXIT_USAGE, SIGNAL_STATUS = 2, 128
DEFAULT_SIZES = "1K,4K,16K,64K,256K,1M,4M,16M,64M"
SHARED_MEMORY, DEFAULT_RATES = "shm", "100mbit,1gbit,2.7gbit,10gbit"
DEFAULT_BUDGET_SECONDS = 1500
DEFAULT_PATIENCE_SECONDS = 30
DESCRIPTION = """\
Compares onebit's allreduce with that of Open MPI, MPICH and Gloo, and with a compressed allreduce made of
whole-tensor passes. All sum fp32 numbers, are timed by the same rules, and take turns.

Over shared memory (shm) all ranks are processes of this host; Gloo has no shared memory and uses TCP over
lo. Over the other links ranks are on hosts of perf/lab, one on each or --ranks-per-host, which takes root.

Results go to a JSON file that perf/report draws. It is written after every command, and --resume
continues it. Exit status: 0 whatever was tried was measured, in each repetition, 1 some of it failed (the
file says what and why) or nothing could be tried, 2 usage."""


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
    """Parses the command line. Lists are separated by commas."""
    parser = argparse.ArgumentParser(prog="compare", description=DESCRIPTION, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_list(name: str, parse_one, default: str, help_text: str) -> None:
        parser.add_argument(name, type=_list_of(parse_one), default=default, metavar="LIST",
                            help=f"{help_text} ({default})")

    parser.add_argument("--links", type=_list_of(Link.parse), metavar="LIST", help="shm, or rates of the lab's links "
                        f"({SHARED_MEMORY},{DEFAULT_RATES}; without shm if hosts have several ranks)")
    add_list("--hosts", _host_count, "2,4,8", "numbers of hosts, or of processes on shared memory")
    parser.add_argument("--ranks-per-host", type=_rank_count, default=1, metavar="N",
                        help="ranks on every host of the lab (1)")
    add_list("--systems", _system, ",".join(SYSTEMS), "which systems")
    add_list("--sizes", parse_size, DEFAULT_SIZES, "messages, in bytes or with K, M")
    parser.add_argument("--repetitions", type=_positive(int), default=3, metavar="N",
                        help="measure everything this many times, if time allows (3)")
    parser.add_argument("--time-budget", type=_positive(float), default=DEFAULT_BUDGET_SECONDS,
                        metavar="SECONDS", help=f"time for the whole comparison ({DEFAULT_BUDGET_SECONDS})")
    parser.add_argument("--patience", type=_positive(float), default=DEFAULT_PATIENCE_SECONDS,
                        metavar="SECONDS", help="wait for a command this long beyond "
                        f"{SLOWNESS} times what it should take ({DEFAULT_PATIENCE_SECONDS})")
    parser.add_argument("--build", type=pathlib.Path, default=DEFAULT_BUILD,
                        metavar="DIR", help="build folder with the tools (build/release)")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE",
                        help="the JSON file (compare.json in the build folder)")
    parser.add_argument("--resume", action="store_true", help="continue that file")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    parser.add_argument("--verbose", action="store_true", help="print a line for every command, also "
                        "without a terminal")
    options = parser.parse_args(arguments)
    has_several = options.ranks_per_host > 1
    if options.links is None:
        options.links = _list_of(Link.parse)(DEFAULT_RATES if has_several else f"{SHARED_MEMORY},{DEFAULT_RATES}")
    if has_several and any(link.rate is None for link in options.links):
        parser.error(f"argument --ranks-per-host: shared memory has no hosts for {options.ranks_per_host} ranks each: "
                     "leave out shm of --links, or set --hosts to the number of processes")
    return options


def _list_of(parse_one):
    def parse_list(text: str) -> list:
        try:
            return list(dict.fromkeys(parse_one(part.strip()) for part in text.split(",")))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return parse_list


def _host_count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MAX_HOSTS:
        raise ValueError(f"{text!r} is not a number of hosts from 2 to {MAX_HOSTS}")
    return int(text)


def _rank_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RANKS_PER_HOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks from 1 to {MAX_RANKS_PER_HOST}")
    return int(text)


def _system(text: str) -> str:
    if text not in SYSTEMS:
        raise ValueError(f"{text!r} is not one of {', '.join(SYSTEMS)}")
    return text


def _positive(kind):
    def parse_number(text: str):
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
        return number
    return parse_number
