# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The files of a folder: results of one study or of both, and what is derived from them."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from convergence.charts import loss_against_bytes, loss_against_steps
from convergence.codec_readme import codec_section
from convergence.codec_study import CodecStudy
from convergence.convergence_readme import TITLE, readme
from convergence.convergence_results import Malformed, Study
from ethernet_lab.json_file import JsonFile

RESULTS = "results.json"
CODECS = "codecs.json"


@dataclasses.dataclass
class Folder:
    """The studies whose results a folder has; at least one."""

    study: Study | None
    codecs: CodecStudy | None

    def derived(self) -> dict[str, str]:
        """Files by name."""
        parts = [readme(self.study) if self.study else TITLE]
        if self.codecs:
            parts.append(codec_section(self.codecs))
        files = {"README.md": "\n".join(parts)}
        if self.study:
            files |= {"loss-steps.svg": loss_against_steps(self.study),
                      "loss-bytes.svg": loss_against_bytes(self.study)}
        return files


def read_folder(folder: pathlib.Path) -> Folder:
    """Raises OSError or Malformed."""
    study, codecs = _read(folder / RESULTS), _read(folder / CODECS)
    if study is None and codecs is None:
        raise Malformed(f"{folder} has neither {RESULTS} nor {CODECS}")
    return Folder(Study(study) if study else None, CodecStudy(codecs) if codecs else None)


def read_codecs(folder: pathlib.Path) -> CodecStudy | None:
    """Results to which more can be added; None if there are none. Raises OSError or Malformed."""
    results = _read(folder / CODECS)
    return CodecStudy(results) if results else None


def differing(folder: pathlib.Path, results: Folder) -> list[str]:
    """Names of the files that differ from what the results imply."""
    return [name for name, text in results.derived().items()
            if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text]


def write_all(folder: pathlib.Path, study: Study) -> None:
    """Raises OSError or Malformed."""
    _write(folder / RESULTS, study.results)
    write_derived(folder)


def write_codecs(folder: pathlib.Path, codecs: CodecStudy) -> None:
    """Writes results only. Raises OSError."""
    _write(folder / CODECS, codecs.results)


def write_derived(folder: pathlib.Path) -> None:
    """Raises OSError or Malformed."""
    for name, text in read_folder(folder).derived().items():
        (folder / name).write_text(text, encoding="utf-8")


def _read(file: pathlib.Path) -> dict | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _write(file: pathlib.Path, results: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with JsonFile(file) as json_file:
        json_file.write(results)
