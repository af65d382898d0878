# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/report."""

import argparse
import os
import pathlib
import signal
import sys

from reporting import comparison, markdown, markers, output, page, trace_file, trace_page
from reporting.fields import Malformed
from reporting.figures import Figures


def calls_of(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        numbers = int(first), int(last if colon else first)
    except ValueError:
        numbers = (1, 0)
    if not 0 <= numbers[0] <= numbers[1]:
        raise argparse.ArgumentTypeError(f"{text} is no number of a call, and no FIRST:LAST")
    return numbers


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="perf/report",
        description="Makes a page with charts, and tables, from what perf/compare measured, or from the traces "
                    "of a program that ran with ONEBIT_TRACE.",
        epilog="Of several files of perf/compare a later one replaces figures of an earlier one, row by row. "
               "Several traces are those of the processes of one job.")
    arguments.add_argument("files", metavar="FILE.json", nargs="+", type=pathlib.Path,
                           help="what perf/compare --output wrote; with --trace, what ONEBIT_TRACE named")
    arguments.add_argument("--html", metavar="OUT.html", type=pathlib.Path,
                           help="write a page that needs no network and no other file")
    arguments.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    arguments.add_argument("--update", metavar="PAGE.md", type=pathlib.Path,
                           help=f"put the tables between {markers.BEGIN} and {markers.END} of a file")
    arguments.add_argument("--trace", action="store_true", help="the files are traces")
    arguments.add_argument("--calls", metavar="FIRST:LAST", type=calls_of,
                           help="with --trace: numbers of the calls that the page draws and the table is of; default: "
                                f"a page draws the last {trace_page.CALLS_SHOWN} of the kind that takes the most "
                                "time, and tables are of all")
    return arguments


def check(options: argparse.Namespace, usage: argparse.ArgumentParser) -> None:
    if options.trace and options.update:
        usage.error("--update is for what perf/compare measured, not for traces")
    if options.calls and not options.trace:
        usage.error("--calls is for traces: give --trace")
    if not (options.html or options.markdown or options.update):
        usage.error("nothing to make: give --html OUT.html, --markdown or --update PAGE.md")


def make_tables(options: argparse.Namespace) -> tuple[dict[pathlib.Path, str], str]:
    """The files to be written, and the tables."""
    figures = Figures(comparison.merged([comparison.read(path) for path in options.files], options.files))
    tables = markdown.markdown(figures)
    texts: dict[pathlib.Path, str] = {}
    if options.update:
        old = options.update.read_text(encoding="utf-8")
        texts[options.update] = markers.updated(old, tables, str(options.update))
    if options.html:
        texts[options.html] = page.page(figures)
    return texts, tables


def make_trace(options: argparse.Namespace) -> tuple[dict[pathlib.Path, str], str]:
    trace = trace_file.read(options.files)
    texts = {options.html: trace_page.page(trace, options.calls)} if options.html else {}
    return texts, trace_page.markdown(trace, options.calls)


def run(options: argparse.Namespace) -> None:
    texts, tables = make_trace(options) if options.trace else make_tables(options)
    for path, text in texts.items():  # all are complete before the first is written
        output.write(path, text)
    if options.markdown:
        print(tables, end="", flush=True)


def main(arguments: list[str]) -> int:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends the program like other signals, without a trace
    usage = parser()
    options = usage.parse_args(arguments)
    check(options, usage)
    try:
        run(options)
    except Malformed as error:
        print(f"perf/report: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere, in silence
        print("perf/report: output pipe was closed", file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        print(f"perf/report: {error}", file=sys.stderr)
        return 1
    return 0
