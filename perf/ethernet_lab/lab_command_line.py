# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/lab."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

from ethernet_lab import namespaces
from ethernet_lab.errors import EXIT_FAILED, LabError, UsageError
from ethernet_lab.lab_guard import Guard
from ethernet_lab.lab_job import run_job
from ethernet_lab.lab_launcher import block_signals, find_launcher, say
from ethernet_lab.mpi_job import LAUNCHERS, MpiLauncher
from ethernet_lab.network import Network, remove_abandoned
from ethernet_lab.rates import Rate
from ethernet_lab.lab_report import open_json, report

MAX_HOSTS = 64
MAX_RANKS_PER_HOST = 64
DEFAULT_GRACE_SECONDS = 10.0
DESCRIPTION = """\
An Ethernet of several hosts on this machine: network namespaces, each with a cable of the given rate to
a switch, a host name and an address of its own (eth0, 10.x.y.1 and on), and no memory shared with the
others. It takes root. Everything is removed at the end, also after SIGINT, SIGTERM, SIGHUP and SIGKILL.

At the end it prints, on standard error, what passed through the link of every host, and beside it what
the program says its library has sent ("#   rank R sent B bytes in M messages" on standard output).

Exit status: that of the first process that failed; 2 bad usage, 77 this machine cannot have a lab."""


def main(arguments: list[str]) -> int:
    _occupy_standard_streams()
    options = parse(arguments)
    try:
        return options.function(options)
    except LabError as error:
        say(str(error))
        if isinstance(error, UsageError):
            say("run perf/lab --help for the options")
        return error.status
    except OSError as error:
        say(str(error))
        return EXIT_FAILED


def _occupy_standard_streams() -> None:
    """Opens closed standard streams: otherwise the first file to be opened would get such a number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:  # else print() would use standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lab", description=DESCRIPTION, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a program as the ranks of one job on all hosts",
                              allow_abbrev=False)
    _add_lab_options(run)
    run.set_defaults(function=_run)

    mpirun = commands.add_parser("mpirun", help="run an MPI program with the MPI's own launcher",
                                 allow_abbrev=False)
    mpirun.add_argument("--mpi", choices=sorted(LAUNCHERS), default="openmpi",
                        help="the MPI whose launcher to use (openmpi)")
    mpirun.add_argument("--mpi-arg", action="append", default=[], metavar="ARG",
                        help="argument for the launcher; once per word: --mpi-arg=--mca --mpi-arg=pml ...")
    _add_lab_options(mpirun)
    mpirun.set_defaults(function=_mpirun)

    clean = commands.add_parser("clean", help="remove labs whose owners are gone",
                                description="Removes labs whose owners have ended without removing them.")
    clean.set_defaults(function=_clean)
    return parser.parse_args(arguments)


def _add_lab_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=_host_count, required=True, metavar="N")
    parser.add_argument("--ranks-per-host", type=_rank_counts, default=[1], metavar="N[,N...]",
                        help="ranks on every host, or those of each (1)")
    parser.add_argument("--rate", required=True,
                        help="rate of each link and direction, such as 100mbit, 2.7gbit, or none")
    parser.add_argument("--grace", type=_seconds, default=DEFAULT_GRACE_SECONDS, metavar="SECONDS",
                        help="time for the other ranks to end by themselves when one has failed (10)")
    parser.add_argument("--json", metavar="FILE", help="write counters and exit status to it")
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR",
                        help="build folder with onebit_run (that of PATH, else build/release)")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("program_arguments", metavar="...", nargs=argparse.REMAINDER)


def _host_count(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= MAX_HOSTS:
        raise argparse.ArgumentTypeError(f"{text} is not in 1 ... {MAX_HOSTS}")
    return count


def _rank_counts(text: str) -> list[int]:
    counts = [int(count) if count.isdecimal() else 0 for count in text.split(",")]
    if not all(1 <= count <= MAX_RANKS_PER_HOST for count in counts):
        raise argparse.ArgumentTypeError(f"{text}: a host may have 1 ... {MAX_RANKS_PER_HOST} ranks")
    return counts


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not in 0 ... 86400")
    return seconds


def _run(options: argparse.Namespace) -> int:
    return _on_lab(options, run_job)


def _mpirun(options: argparse.Namespace) -> int:
    launcher = MpiLauncher(options.mpi, options.mpi_arg)
    return _on_lab(options, launcher.run_job, has_launcher=True)


def _on_lab(options: argparse.Namespace, run, has_launcher: bool = False) -> int:
    """Makes the lab, runs the job, and reports."""
    rate = Rate.parse(options.rate)
    ranks_per_host = _ranks_per_host(options)
    namespaces.require_support()
    launcher = find_launcher(options.build)
    command = [options.program, *options.program_arguments]
    with open_json(options.json) as json_file:
        block_signals()
        with Guard(), Network(options.hosts, rate, has_launcher) as network:
            result = run(network, launcher, command, options.grace, ranks_per_host)
        report(result, json_file)
    return result.status


def _ranks_per_host(options: argparse.Namespace) -> list[int]:
    counts = options.ranks_per_host
    if len(counts) == 1:
        return counts * options.hosts
    if len(counts) != options.hosts:
        raise UsageError(f"--ranks-per-host has {len(counts)} numbers for {options.hosts} hosts: "
                         "give one for all of them, or one for each")
    return counts


def _clean(_: argparse.Namespace) -> int:
    for name in remove_abandoned():
        print(f"removed {name}")
    return 0
