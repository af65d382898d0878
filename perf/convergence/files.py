# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The files of a study. All except results.json are derived from it."""

from __future__ import annotations

import json
import pathlib

from convergence.charts import loss_against_bytes, loss_against_steps
from convergence.convergence_readme import readme
from convergence.convergence_results import Study
from ethernet_lab.json_file import JsonFile

RESULTS = "results.json"
DERIVED = {"README.md": readme, "loss-steps.svg": loss_against_steps, "loss-bytes.svg": loss_against_bytes}


def read_results(folder: pathlib.Path) -> Study:
    """Raises OSError or Malformed."""
    return Study(json.loads((folder / RESULTS).read_text(encoding="utf-8")))


def differing(folder: pathlib.Path, study: Study) -> list[str]:
    """Names of the files that differ from what the results imply."""
    return [name for name, text_of in DERIVED.items()
            if not (folder / name).is_file()
            or (folder / name).read_text(encoding="utf-8") != text_of(study)]


def write_all(folder: pathlib.Path, study: Study) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with JsonFile(folder / RESULTS) as file:
        file.write(study.results)
    for name, text_of in DERIVED.items():
        (folder / name).write_text(text_of(study), encoding="utf-8")
