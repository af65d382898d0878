# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The runs of the study: rates on a grid with the first seed, and then cells of models, ranks, batches and seeds
at a rule for the rate. Runs are kept, so that a study goes on where it ended."""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys

from convergence.codec_study import RATES as FORMER_RATES, best_of, next_rate
from ethernet_lab.json_file import JsonFile
from freeze_free.freeze_free_tables import Cell
from freeze_free.freeze_free_training import DENSE, FLOORED, LOCAL, ONEBIT_ADAM, Run, train
from freeze_free.study_models import Text

SMALL, LARGE = 4, 32  # sequences per rank and step
STEPS = {SMALL: 600, LARGE: 240}
RANKS = (2, 4, 8, 16)
SEEDS = (0, 1, 2)
GRID_RANKS = 4
GRID_METHODS = (DENSE, LOCAL, FLOORED)
TESTED = FLOORED  # the better one of the grid
RATES = [*FORMER_RATES, 0.03, 0.045, 0.07, 0.1]
FIRST_RATES = [0.0045, 0.007, 0.01]


def local_rate(dense_rate: float, ranks: int) -> float:
    """The rule for the rate with local variances, chosen from the grid before any other run was made."""
    return dense_rate * math.sqrt(ranks)


class FreezeFreeStudy:
    """All runs, each of which is trained when it is asked for first. `options` are those of the script `run`."""

    def __init__(self, text: Text, options: argparse.Namespace):
        self._text = text
        self._options = options
        options.out.mkdir(parents=True, exist_ok=True)

    def grids(self) -> dict[str, dict[float, float | None]]:
        """Held-out losses of the first seed by rate, for each model and method."""
        return {f"{model}, {method}": self._grid(model, method)
                for model in self._options.models for method in GRID_METHODS}

    def cells(self) -> list[Cell]:
        """The cells of the rule, by model, batch and ranks. The cheap ones are trained first."""
        places = [(batch, ranks) for batch in (SMALL, LARGE) for ranks in self._options.ranks]
        for seed in self._options.seeds:
            for batch, ranks in sorted(places, key=math.prod):
                for model in self._options.models:
                    self._pair(model, TESTED, ranks, batch, seed)
        return [self._cell(model, TESTED, ranks, batch) for model in self._options.models for batch, ranks in places]

    def onebit_adam_cells(self) -> list[Cell]:
        """1-bit Adam at AdamW's rate, by model."""
        return [self._cell(model, ONEBIT_ADAM, GRID_RANKS, SMALL) for model in self._options.models]

    def adamw_cells(self) -> list[Cell]:
        """AdamW with large batches at the rate of the rule, to see what the rate alone does, by model."""
        return [self._cell(model, DENSE, GRID_RANKS, LARGE) for model in self._options.models]

    def _grid(self, model: str, method: str) -> dict[float, float | None]:
        """The best rate of a grid has a worse one on either side."""
        losses: dict[float, float | None] = {}
        while (rate := next_rate(losses, RATES, FIRST_RATES)) is not None:
            result = self._result(model, method, GRID_RANKS, SMALL, self._options.seeds[0], rate)
            losses[rate] = result["held_out_loss"]
        return losses

    def _cell(self, model: str, method: str, ranks: int, batch: int) -> Cell:
        pairs = [self._pair(model, method, ranks, batch, seed) for seed in self._options.seeds]
        return Cell([dense for dense, _ in pairs], [other for _, other in pairs])

    def _pair(self, model: str, method: str, ranks: int, batch: int, seed: int) -> tuple[dict, dict]:
        """Results of AdamW at its best rate, and of a method at that of the rule; of 1-bit Adam at AdamW's."""
        rate = best_of(self._grid(model, DENSE))
        other_rate = rate if method == ONEBIT_ADAM else local_rate(rate, ranks)
        return (self._result(model, DENSE, ranks, batch, seed, rate),
                self._result(model, method, ranks, batch, seed, other_rate))

    def _result(self, model: str, method: str, ranks: int, batch: int, seed: int, rate: float) -> dict:
        run = Run(model, method, ranks, batch, seed, rate, self._options.steps or STEPS[batch])
        path: pathlib.Path = self._options.out / f"{run.name()}.json"
        if not path.exists():
            print(run.name(), file=sys.stderr, flush=True)
            with JsonFile(path) as file:
                file.write({**train(run, self._text), "text_bytes": self._text.bytes})
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["text_bytes"] != self._text.bytes:
            sys.exit(f"{path} is of a text of {result['text_bytes']} bytes, not {self._text.bytes}: remove it, or give "
                     "--out")
        return result
