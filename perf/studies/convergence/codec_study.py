# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The study of what compression an optimizer bears: rows of settings, the order in which they are trained, and their
losses."""

from __future__ import annotations

import math
import statistics

from convergence.optimizer_study import Malformed

# Options of train_text.
MODELS = {"mlp": ["--model", "mlp"], "transformer": ["--model", "transformer"]}
DENSE = "adam"  # the row that all others are compared with
ROWS = {
    DENSE: ["--optimizer", "adam"],
    **{f"{codec}-{mode}": ["--optimizer", "adam", "--codec", codec, "--mode", mode]
       for codec, mode in (("fp4", "plain"), ("fp4", "ef"), ("int8", "plain"), ("int8", "ef"), ("int2", "ef"),
                           ("sign", "ef"))},
    "onebit-adam": ["--optimizer", "onebit-adam"],
    "zero-one-adam": ["--optimizer", "zero-one-adam"],
    **{f"{codec}-plain": ["--optimizer", "adam", "--codec", codec, "--mode", "plain"]
       for codec in ("int2", "sign")}}

# Rates about 1.5 times each other. The search for a row's rate begins with three of them and goes on to
# the neighbours of the best one.
RATES = [0.0002, 0.0003, 0.00045, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.0045, 0.007, 0.01, 0.015, 0.02]
FIRST_RATES = [0.003, 0.0045, 0.007]

CODEC_STUDY = {"models": list(MODELS), "rows": list(ROWS), "seeds": [0, 1, 2], "steps": 500, "ranks": 4}


def next_rate(tried: dict[float, float | None], rates: list[float] = RATES,
              first: list[float] = FIRST_RATES) -> float | None:
    """The rate to try next, after losses of some (None: diverged): those of `first`, then of `rates`. None if both
    neighbours of the best one were tried."""
    for rate in first:
        if rate not in tried:
            return rate
    best = rates.index(best_of(tried))
    for index in (best - 1, best + 1):
        if 0 <= index < len(rates) and rates[index] not in tried:
            return rates[index]
    return None


def best_of(tried: dict[float, float | None]) -> float:
    """The rate of the least loss; the lowest one if all diverged."""
    return min(tried, key=lambda rate: (math.inf if tried[rate] is None else tried[rate], rate))


class CodecStudy:
    """All runs so far, checked."""

    def __init__(self, results: dict):
        """Raises Malformed."""
        if (results.get("format"), results.get("version")) != ("onebit-codec-convergence", 1):
            raise Malformed("not the results of a study of codecs, version 1")
        self.results = results
        self.seeds: list[int] = results["seeds"]
        for run in results["runs"]:
            if run["bytes_expected"] not in (None, run["bytes_sent_per_rank"]):
                raise Malformed(f"{run['model']}, {run['row']}, seed {run['seed']}: rank 0 sent "
                                f"{run['bytes_sent_per_rank']} bytes, but by the formula it is "
                                f"{run['bytes_expected']}")
        self.models = [name for name in results["models"] if self.rows(name)]

    def tried(self, model: str, row: str) -> dict[float, float | None]:
        """Losses by rate, of the first seed."""
        return {run["lr"]: run["heldout_loss"] for run in self._runs(model, row)
                if run["seed"] == self.seeds[0]}

    def runs(self, model: str, row: str) -> dict[int, dict]:
        """Runs by seed, at the best rate."""
        rate = best_of(self.tried(model, row))
        return {run["seed"]: run for run in self._runs(model, row) if run["lr"] == rate}

    def next_run(self, model: str, row: str) -> tuple[int, float] | None:
        """Seed and rate of what is to be trained next; None if the row is complete."""
        tried = self.tried(model, row)
        rate = next_rate(tried)
        if rate is not None:
            return self.seeds[0], rate
        missing = [seed for seed in self.seeds if seed not in self.runs(model, row)]
        return (missing[0], best_of(tried)) if missing else None

    def rows(self, model: str) -> list[str]:
        """Rows that are complete."""
        return [row for row in self.results["rows"] if self.next_run(model, row) is None]

    def losses(self, model: str, row: str) -> list[float | None]:
        runs = self.runs(model, row)
        return [runs[seed]["heldout_loss"] for seed in self.seeds]

    def difference(self, model: str, row: str, base: str = DENSE) -> tuple[float, float] | None:
        """Mean over the seeds of the row's loss minus that of `base` with the same seed, and the standard error
        of that mean (infinite for one seed). None if a run diverged or the base is not there."""
        if base not in self.rows(model):
            return None
        pairs = list(zip(self.losses(model, row), self.losses(model, base)))
        if any(None in pair for pair in pairs):
            return None
        differences = [loss - of_base for loss, of_base in pairs]
        error = math.inf
        if len(differences) > 1:
            error = statistics.stdev(differences) / math.sqrt(len(differences))
        return statistics.fmean(differences), error

    def _runs(self, model: str, row: str) -> list[dict]:
        return [run for run in self.results["runs"] if (run["model"], run["row"]) == (model, row)]
