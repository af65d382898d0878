# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of perf/replay, in Markdown, and its report."""

from __future__ import annotations

import dataclasses
import textwrap

from replays.published_rows import Measured, Row
from reporting.markdown import table
from reporting.units import digits

WIDTH = 112
MOST_APART = 0.15  # of the published figure; beyond that a sentence says why
ROW_HEAD = ["paper", "row", "published", "here", "ratio", "baseline MB", "MB", "rounds"]
STAGE_HEAD = ["setting", "scale", "average", "ms", "link busy", "MB on a link", "messages", "CPU ms"]


@dataclasses.dataclass(frozen=True)
class Result:
    """A row beside its figure here."""

    row: Row
    measured: Measured
    published: float
    here: float

    @classmethod
    def of(cls, row: Row, measured: Measured) -> Result:
        return cls(row, measured, row.published_on(measured.hosts), row.here(row, measured))

    @property
    def ratio(self) -> float:
        return self.here / self.published

    @property
    def why(self) -> str | None:
        """A sentence on the difference, if there is a large one."""
        return self.row.why(self.row, self.measured) if abs(self.ratio - 1) > MOST_APART else None

    def megabytes(self) -> list[float]:
        """What a host's link carries per step of the baseline and of the method, in the published size."""
        return [self.row.sent(self.measured, schedule) / 1e6 for schedule in (self.row.base, self.row.method)]

    def rounds(self) -> float:
        return self.row.method.rounds / self.row.method.steps

    def cells(self) -> list[str]:
        figures = [f"{digits(figure)}{self.row.unit}" for figure in (self.published, self.here)]
        return [self.row.paper, self.row.what, *figures, f"{self.ratio:.2f}", *map(digits, self.megabytes()),
                digits(self.rounds(), 2)]

    def as_json(self) -> dict:
        return {"paper": self.row.paper, "row": self.row.what, "setting": self.row.setting.name,
                "hosts": self.measured.hosts, "ranks_per_host": self.measured.ranks_per_host,
                "unit": self.row.unit.strip(), "published": self.published, "here": self.here, "ratio": self.ratio,
                "why": self.why, "link_megabytes": self.megabytes(), "rounds_per_step": self.rounds()}


def row_lines(results: list[Result]) -> list[str]:
    """The table of rows, and a sentence for each that is far from what was published."""
    lines = table([ROW_HEAD, *(result.cells() for result in results)], 2)
    for result in results:
        if result.why:
            lines += ["", *textwrap.wrap(f"{result.row.paper}, {result.row.what}: {result.why}", WIDTH,
                                         break_on_hyphens=False)]
    return lines


def stage_lines(settings: list[Measured]) -> list[str]:
    """What links and ranks did in one average of each kind. Times are as published ones; bytes and CPU are those of
    the smaller model."""
    rows = [STAGE_HEAD]
    for measured in settings:
        setting, shrink = measured.setting, measured.setting.shrink[measured.ranks_per_host]
        for name, stage in measured.stages.items():
            rows.append([f"{setting.name}, {measured.hosts} x {measured.ranks_per_host}",
                         f"1/{shrink}" + (f", {setting.hurry}x as fast" if setting.hurry > 1 else ""), name,
                         digits(1e3 * stage.seconds), f"{100 * stage.link_seconds / stage.seconds:.0f} %",
                         digits(stage.link_bytes / shrink / 1e6), f"{stage.messages:.0f}",
                         digits(1e3 * stage.cpu_seconds)])
    return table(rows, 3)


def stages_as_json(measured: Measured) -> dict:
    return {"setting": measured.setting.name, "hosts": measured.hosts, "ranks_per_host": measured.ranks_per_host,
            "shrink": measured.setting.shrink[measured.ranks_per_host], "hurry": measured.setting.hurry,
            "computing_seconds": measured.computing(),
            "stages": {name: dataclasses.asdict(stage) for name, stage in measured.stages.items()}}
