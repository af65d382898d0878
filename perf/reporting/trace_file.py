# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what ONEBIT_TRACE wrote (docs/trace.md): the rows of ranks and their spans, on one clock."""

import dataclasses
import json
import pathlib
import re

from reporting.fields import Fields, Malformed
from reporting.trace_clock import Machine, align
from reporting.trace_row import CALLS, Row, Span
from reporting.units import time_text

SPAN, BEGIN, END, METADATA, INSTANT = "X", "b", "e", "M", "i"
DROPPED = "events dropped"


@dataclasses.dataclass
class Trace:
    rows: list[Row]
    notes: list[str]  # what is missing


def parse_events(path: pathlib.Path) -> tuple[list[object], bool]:
    """The events, and whether the file ends before its time. A process that is killed while it writes
    leaves an incomplete line behind; there is one for each event."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Malformed(f"{path}: is no trace: {error}") from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = text.splitlines()
        if not lines or lines[0] != "[":
            raise Malformed(f"{path}: is not JSON: {error}") from error
        events = []
        for line in lines[1:]:
            try:
                events.append(json.loads(line.rstrip(",")))
            except ValueError:
                break
        return events, True
    if isinstance(value, dict):
        value = value.get("traceEvents")
    if not isinstance(value, list):
        raise Malformed(f"{path}: is no trace: a list of events is expected")
    return value, False


def args_of(fields: Fields) -> Fields:
    return Fields({} if fields.is_absent("args") else fields.raw("args"), f"{fields.where}.args")


def span_of(fields: Fields, begin: float, end: float, args: Fields) -> Span:
    return Span(fields.text("name"), fields.text("cat"), begin, end, args.integer("call"),
                args.optional_integer("peer"), args.is_true("failed"), args.members())


def message_of(event: Fields) -> tuple[int, str]:
    return event.integer("pid"), Fields(event.raw("id2"), f"{event.where}.id2").text("local")


class Reader:
    """Collects the rows of one file."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.rows: dict[tuple[int, int], Row] = {}
        self.dropped = 0
        self._open: dict[tuple[int, str], tuple[Fields, Fields]] = {}
        self.clock: tuple[str, float] | None = None  # the machine, and the wall clock minus its own

    def read(self) -> bool:
        events, is_cut = parse_events(self._path)
        for number, value in enumerate(events):
            self._add(Fields(value, f"{self._path}: event {number}"))
        if not self.rows and self.clock is None:
            raise Malformed(f"{self._path}: is no trace of ONEBIT_TRACE: it names no rank")
        return is_cut

    def _add(self, event: Fields) -> None:
        phase, args = event.text("ph"), args_of(event)
        if phase == METADATA:
            self._add_metadata(event, args)
        elif phase == SPAN:
            begin = event.number("ts")
            self._row(event).spans.append(span_of(event, begin, begin + event.number("dur"), args))
        elif phase == BEGIN:
            self._open[message_of(event)] = event, args
        elif phase == END:
            begun = self._open.pop(message_of(event), None)
            if begun is None:
                raise Malformed(f"{event.where}: ends a message that did not begin")
            first, args = begun
            span = span_of(first, first.number("ts"), event.number("ts"), args)
            self._row(event).messages.append(span)
        elif phase == INSTANT and event.text("name") == DROPPED:
            self.dropped += args.integer("count")

    def _add_metadata(self, event: Fields, args: Fields) -> None:
        name = event.text("name")
        if name == "thread_name":
            row = Row(args.integer("rank"), args.text("communicator"), args.text("row"))
            self.rows[event.integer("pid"), event.integer("tid")] = row
        elif name == "onebit_clock":
            offset = (args.integer("unix_ns") - args.integer("steady_ns")) / 1e3
            self.clock = args.text("boot_id"), offset

    def _row(self, event: Fields) -> Row:
        row = self.rows.get((event.integer("pid"), event.integer("tid")))
        if row is None:
            raise Malformed(f"{event.where}: is on a row that no event names")
        return row


def row_order(row: Row) -> tuple[object, ...]:
    """Rank by rank, and the calls of each first. Threads are in the order of their numbers."""
    digits = re.sub(r"\D", "", row.name)
    return (row.communicator, row.rank, row.name != CALLS, re.sub(r"\d", "", row.name), int(digits or 0))


def read(paths: list[pathlib.Path]) -> Trace:
    """All files together. Processes of one machine share its clock."""
    trace = Trace([], [])
    machines: dict[str, Machine] = {}
    for path in paths:
        reader = Reader(path)
        if reader.read():
            trace.notes.append(f"{path.name} is cut short: its process was ended while it wrote")
        if reader.dropped:
            trace.notes.append(f"{path.name} lacks {reader.dropped} events, which came faster than they "
                               "could be written")
        boot, wall = reader.clock or (next(iter(machines), ""), 0.0)
        rows = [row for row in reader.rows.values() if row.spans or row.messages]
        machines.setdefault(boot, Machine(boot, wall)).rows += rows
        trace.rows += rows
    if len(machines) > 1:
        error = align(list(machines.values()))
        trace.notes.append(f"times of {len(machines)} machines are aligned by their " + (
            "wall clocks, which may differ by milliseconds" if error is None else
            f"messages, to within {time_text(error)}"))
    trace.rows.sort(key=row_order)
    return trace
