# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of perf/report."""

import argparse
import os
import pathlib
import signal
import sys

from reporting import comparison, markdown, markers, output
from reporting.fields import Malformed
from reporting.figures import Figures

EXIT_UNAVAILABLE = 77  # to CTest, what is skipped


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="perf/report",
        description="Makes a page with charts, and tables, from what perf/compare measured.",
        epilog="Of several files a later one replaces figures of an earlier one, row by row.")
    arguments.add_argument("files", metavar="FILE.json", nargs="+", type=pathlib.Path,
                           help="what perf/compare --output wrote")
    arguments.add_argument("--html", metavar="OUT.html", type=pathlib.Path,
                           help="write a page that needs no network and no other file; takes matplotlib "
                                "(Debian: python3-matplotlib)")
    arguments.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    arguments.add_argument("--update", metavar="PAGE.md", type=pathlib.Path,
                           help=f"put the tables between {markers.BEGIN} and {markers.END} of a file")
    return arguments


def check(options: argparse.Namespace, usage: argparse.ArgumentParser) -> None:
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
        from reporting import page  # pylint: disable=import-outside-toplevel  # tables need no matplotlib
        texts[options.html] = page.page(figures)
    return texts, tables


def run(options: argparse.Namespace) -> None:
    texts, tables = make_tables(options)
    for path, text in texts.items():  # all are complete before the first is written
        output.write(path, text)
    if options.markdown:
        print(tables, end="", flush=True)


def main(arguments: list[str]) -> int:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends the program like other signals
    usage = parser()
    options = usage.parse_args(arguments)
    check(options, usage)
    try:
        run(options)
    except Malformed as error:
        print(f"perf/report: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"perf/report: {error}: charts need it; Debian has it in python3-matplotlib", file=sys.stderr)
        return EXIT_UNAVAILABLE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere, in silence
        print("perf/report: output pipe was closed", file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        print(f"perf/report: {error}", file=sys.stderr)
        return 1
    return 0
