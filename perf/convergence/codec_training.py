# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains the rows of the study of codecs, and goes on where an earlier call ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from comparison.compare_machine import compiler, processor
from convergence.codec_study import KEPT, MODELS, ROWS, CodecStudy
from convergence.convergence_training import TrainingFailed, train

# All runs of codecs.json have these in common; a run that differs cannot be added.
SETTING = ("machine", "ranks", "steps", "seeds", "training_options")


def setting_of(options: argparse.Namespace) -> dict:
    """What codecs.json has before the first run."""
    # Facts that losses may depend on: the models are compiled for the processor.
    machine = {"cpu": processor(), "compiler": compiler(options.build.resolve())}
    return {"format": "onebit-codec-convergence", "version": 1, "machine": machine, "ranks": options.ranks,
            "steps": options.steps, "seeds": options.seeds, "training_options": options.training,
            "rows": [], "models": {}, "runs": []}


def continued(options: argparse.Namespace, earlier: CodecStudy | None) -> dict:
    """The results to add to. Raises TrainingFailed if the earlier ones have another setting."""
    results = setting_of(options)
    if earlier is None:
        return results
    for name in SETTING:
        if earlier.results[name] != results[name]:
            raise TrainingFailed(
                f"{name} of codecs.json is {earlier.results[name]}, not {results[name]}: delete the file to "
                "begin again, or give another folder with --out")
    return earlier.results


def train_codecs(options: argparse.Namespace, earlier: CodecStudy | None,
                 save: Callable[[CodecStudy], None]) -> CodecStudy:
    """Trains what is missing; `save` is called after every run."""
    results = continued(options, earlier)
    results["rows"] = [row for row in ROWS if row in options.rows or row in results["rows"]]
    for row in options.rows:
        for model in options.models:
            while (run := CodecStudy(results).next_run(model, row)) is not None:
                _train_one(options, results, model, row, *run)
                save(CodecStudy(results))
    return CodecStudy(results)


def _train_one(options: argparse.Namespace, results: dict, model: str, row: str, seed: int,
               rate: float) -> None:
    name = f"{model}, {row}, rate {rate:g}"
    print(f"training {name}, seed {seed}", file=sys.stderr, flush=True)
    report = train(options, name, seed, [*MODELS[model], *ROWS[row], "--lr", str(rate)])
    text = {field: report["text"][field] for field in ("bytes", "fnv1a", "heldout_bytes")}
    if results.setdefault("text", text) != text:
        raise TrainingFailed(f"{name}, seed {seed}: the text is {text}, not {results['text']} as of the runs "
                             "before")
    config = report["config"]
    results["models"].setdefault(model, {
        "parameters": report["parameters"], "heldout_positions": report["heldout_positions"],
        "config": {field: config[field] for field in ("batch", "context", "warmup", "beta1", "beta2")}})
    results["runs"].append({"model": model, "row": row, "seed": seed, "lr": rate,
                            **{field: report[field] for field in KEPT}})
