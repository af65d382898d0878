# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Common parts of the tests of perf/report: the package, and made-up figures. The times of
data/compare_synthetic.json were chosen so that results can be checked by hand."""

import copy
import importlib.util
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "perf" / "report"
DATA = ROOT / "tests" / "studies" / "data" / "compare_synthetic.json"
sys.path.insert(0, str(ROOT / "perf" / "studies"))

from reporting import comparison  # noqa: E402  (the path comes first)
from reporting.figures import Figures, GroupFigures  # noqa: E402
from reporting.rank_layout import Layout  # noqa: E402


HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def need_matplotlib() -> None:
    """Ends the test with the status of a skipped one where charts cannot be drawn."""
    if not HAS_MATPLOTLIB:
        print("skipped: no matplotlib (apt-get install python3-matplotlib)")
        sys.exit(77)


def document() -> dict:
    """Returns the figures as JSON, to be changed at will."""
    return json.loads(DATA.read_text())


def figures_of(*documents: dict) -> Figures:
    names = [pathlib.Path(f"file{index}.json") for index in range(len(documents))]
    files = [comparison.parsed(copy.deepcopy(value), str(name))
             for value, name in zip(documents, names, strict=True)]
    return Figures(comparison.merged(files, names))


def on_shared_hosts(value: dict, ranks_per_host: int) -> dict:
    """The rows of the lab as if every host had so many ranks; those of shared memory are left out."""
    rows = [row | {"ranks_per_host": ranks_per_host} for row in value["results"] if row["link"] == "lab"]
    return value | {"results": rows}


def group_of(figures: Figures, link: str, bits_per_second: int | None, hosts: int,
             ranks_per_host: int = 1) -> GroupFigures:
    return next(group for group in figures.groups
                if group.group == comparison.Group(link, bits_per_second, Layout(ranks_per_host, hosts)))
