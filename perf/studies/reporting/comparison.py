# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of perf/compare as values: reading, checking and merging its files.

The format is "onebit-compare", version 1. Whatever is wrong in a file is an error that says where;
a system that failed is no error but a row without a time, which says why.

Members that version 1 did not have from the beginning are optional.
"""

import dataclasses
import enum
import pathlib

from reporting.fields import Fields, Malformed, read_json
from reporting.rank_layout import Layout
from reporting.systems import BY_NAME, System

FORMAT = "onebit-compare"
VERSION = 1
ELEMENT_BYTES = 4  # fp32
LEFT_OUT_PREFIX = "left out: "  # of reasons in files that have no states


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where, when and with what the figures were taken."""

    cpu: str
    cores: int
    kernel: str
    date: str
    commit: str
    compiler: str
    copy_gbps: float  # of one core, bytes read plus bytes written
    cache_bytes: int | None  # the last level's; None: not known


@dataclasses.dataclass(frozen=True)
class Group:
    """What rows must have in common to be compared."""

    link: str
    bits_per_second: int | None  # None: no limit, or no wire
    layout: Layout


@dataclasses.dataclass(frozen=True)
class Times:
    """Of one call, in microseconds: the median of the repetitions and their range."""

    median: float
    least: float
    most: float


class State(enum.Enum):
    """What became of a row."""

    MEASURED = "measured"
    FAILED = "failed"
    LEFT_OUT = "left out"
    ABSENT = "absent"


@dataclasses.dataclass(frozen=True)
class Row:
    """One system at one size. Either it has times, or `problem` says why not.

    `failed_repetitions` of a row with times did not succeed, for the reason `failure`.
    """

    group: Group
    system: System
    size: int
    times: Times | None
    problem: str | None
    repetitions: int | None
    calls: int | None
    wire_bytes: int | None
    link_bytes: int | None
    levels: int | None  # of onebit's calls: 2 inside hosts and then between them
    rel_error: float | None
    state: State
    failed_repetitions: int
    failure: str | None

    @property
    def key(self) -> tuple[Group, System, int]:
        return self.group, self.system, self.size


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything a report is made of. `machines`: one for each file, all the same machine."""

    machines: tuple[Machine, ...]
    rows: tuple[Row, ...]
    commands: dict[str | None, dict[str, str]]  # by kind of link, None in older files; then by system


def read_machine(fields: Fields) -> Machine:
    return Machine(
        cpu=fields.text("cpu"), cores=fields.integer("cores", 1), kernel=fields.text("kernel"),
        date=fields.text("date"), commit=fields.text("commit"), compiler=fields.text("compiler"),
        copy_gbps=fields.positive("copy_gbps"),
        cache_bytes=fields.optional_integer("cache_bytes", 1))


def read_group(fields: Fields) -> Group:
    link = fields.text("link")
    if link not in ("shm", "lab"):
        raise fields.wrong("link", 'link: "shm" or "lab"')
    rate = fields.optional_integer("rate_bits_per_second", 1)
    if link == "shm" and rate is not None:
        raise fields.wrong("rate_bits_per_second", "null, though shared memory has no rate")
    if link == "lab" and rate is None and fields.optional_text("rate") not in (None, "none"):
        raise fields.wrong("rate_bits_per_second", f"rate in bits, though rate is {fields.raw('rate')}")
    ranks_per_host = fields.optional_integer("ranks_per_host", 1) or 1
    if link == "shm" and ranks_per_host > 1:
        raise fields.wrong("ranks_per_host", "1, though every process counts as a host on shared memory")
    return Group(link, rate, Layout(ranks_per_host, fields.integer("hosts", 2)))


def read_times(fields: Fields) -> Times:
    times = Times(fields.positive("time_us"), fields.positive("time_us_min"),
                  fields.positive("time_us_max"))
    if not times.least <= times.median <= times.most:
        raise fields.wrong("time_us", f"time between time_us_min {times.least} and "
                                      f"time_us_max {times.most}")
    return times


def read_state(fields: Fields, problem: str | None) -> State:
    """As far as the file says it."""
    text = fields.optional_text("state")
    if text is not None:
        if text not in {state.value for state in State}:
            raise fields.wrong("state", f"state: {', '.join(state.value for state in State)}")
        state = State(text)
        if (state is State.MEASURED) != (problem is None):
            raise fields.wrong("state", f"state of a row whose error is {problem!r}")
        return state
    if problem is None:
        return State.MEASURED
    return State.LEFT_OUT if problem.startswith(LEFT_OUT_PREFIX) else State.FAILED


def read_row(fields: Fields) -> Row:
    name = fields.text("system")
    if name not in BY_NAME:
        raise fields.wrong("system", f"system known here: {', '.join(BY_NAME)}")
    size = fields.integer("size", ELEMENT_BYTES)
    if size % ELEMENT_BYTES != 0:
        raise fields.wrong("size", f"multiple of {ELEMENT_BYTES} bytes")
    problem = fields.optional_text("error")
    times = None if problem is not None else read_times(fields)
    state = read_state(fields, problem)
    count_wrong = fields.optional_integer("nwrong")
    if times is not None and count_wrong:
        # A time in which something else was computed is no time of an allreduce.
        times, problem, state = None, f"{count_wrong} wrong elements in its result", State.FAILED
    has_counts = problem is None
    return Row(
        group=read_group(fields), system=BY_NAME[name], size=size, times=times,
        problem=problem or (None if times else "it gave no reason"),
        repetitions=fields.integer("repetitions", 1) if has_counts else None,
        calls=fields.integer("calls", 1) if has_counts else None,
        wire_bytes=fields.optional_integer("wire_bytes"),
        link_bytes=fields.optional_integer("link_bytes"),
        levels=fields.optional_integer("levels", 1),
        rel_error=fields.optional_number("rel_error"),
        state=state,
        failed_repetitions=fields.optional_integer("failed_repetitions") or 0,
        failure=fields.optional_text("failure"))


def read_commands(value: object, where: str) -> dict[str | None, dict[str, str]]:
    """Texts by kind of link and system, or by system alone."""
    members = Fields(value, where)
    commands: dict[str | None, dict[str, str]] = {}
    for name in value:
        if isinstance(value[name], dict):
            of_kind = Fields(value[name], f"{where}.{name}")
            commands.setdefault(name, {}).update({system: of_kind.text(system) for system in value[name]})
        else:
            commands.setdefault(None, {})[name] = members.text(name)
    return commands


def read(path: pathlib.Path) -> Comparison:
    """One file. Raises Malformed."""
    return parsed(read_json(path), str(path))


def parsed(value: object, path: str) -> Comparison:
    """What a file of that name holds. Raises Malformed."""
    fields = Fields(value, path)
    if fields.text("format") != FORMAT:
        raise Malformed(f"{path}: the format is '{fields.text('format')}', not '{FORMAT}': give the "
                        "file that perf/compare --output wrote")
    if fields.integer("version") != VERSION:
        raise Malformed(f"{path}: has version {fields.integer('version')}, this report reads {VERSION}")
    results = fields.raw("results")
    if not isinstance(results, list):
        raise fields.wrong("results", "list")
    if not results:
        raise Malformed(f"{path}: results is empty: let perf/compare measure something first")
    rows: dict[tuple, Row] = {}
    for index, result in enumerate(results):
        row = read_row(Fields(result, f"{path}: results[{index}]"))
        if row.key in rows:
            raise Malformed(f"{path}: results[{index}]: {row.system.name} with {row.size} bytes is there "
                            "twice for this link and these hosts")
        rows[row.key] = row
    return Comparison((read_machine(Fields(fields.raw("machine"), f"{path}: machine")),),
                      tuple(rows.values()), read_commands(fields.raw("commands"), f"{path}: commands"))


def merged(comparisons: list[Comparison], paths: list[pathlib.Path]) -> Comparison:
    """All files as one. A later file replaces rows of an earlier one, as when a part is measured again;
    but a row that failed replaces none that has a time."""
    first = comparisons[0].machines[0]
    rows: dict[tuple, Row] = {}
    commands: dict[str | None, dict[str, str]] = {}
    for comparison, path in zip(comparisons, paths, strict=True):
        for machine in comparison.machines:
            if (machine.cpu, machine.cores) != (first.cpu, first.cores):
                raise Malformed(
                    f"{path}: was taken on another machine ({machine.cpu}, {machine.cores} cores) than "
                    f"{paths[0]} ({first.cpu}, {first.cores} cores): make a report of each")
        for row in comparison.rows:
            if row.key not in rows or row.times or not rows[row.key].times:
                rows[row.key] = row
        for kind, of_kind in comparison.commands.items():
            commands[kind] = commands.get(kind, {}) | of_kind
    machines = tuple(machine for comparison in comparisons for machine in comparison.machines)
    return Comparison(tuple(dict.fromkeys(machines)), tuple(rows.values()), commands)
