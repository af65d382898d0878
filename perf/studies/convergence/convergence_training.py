# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs train_text and keeps the parts of its reports that the studies need."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

from machine_facts import compiler, processor
from convergence.codec_study import MODELS, ROWS, CodecStudy
from convergence.optimizer_study import Study

EVALUATE_EVERY_PERCENT = 5
# Fields kept of each run's report.
OF_OPTIMIZER = ("optimizer", "seed", "config", "heldout_loss", "diverged_at", "skipped_steps", "schedule", "rounds",
                "dense_steps", "compressed_steps", "local_steps", "final_sync_bytes", "bytes_sent_per_rank",
                "bytes_expected")
OF_CODEC = ("heldout_loss", "diverged_at", "skipped_steps", "bytes_sent_per_rank", "bytes_expected")
# All runs of a study of codecs have these in common; a run that differs cannot be added.
SETTING = ("machine", "ranks", "steps", "seeds", "training_options")


class TrainingFailed(Exception):
    """train_text ended with an error, or with other data than before."""


def train_optimizers(options: argparse.Namespace) -> Study:
    """Trains every optimizer with every seed."""
    reports = []
    for optimizer in options.optimizers:
        for seed in options.seeds:
            reports.append(_train(options, optimizer, seed, ["--optimizer", optimizer, "--eval-every",
                                                             str(EVALUATE_EVERY_PERCENT)]))
    first = reports[0]
    return Study({"format": "onebit-convergence", "version": 1, **_setting(options),
                  "parameters": first["parameters"], "text": _text_of(first),
                  "runs": [_optimizer_run(report) for report in reports]})


def train_codecs(options: argparse.Namespace, earlier: dict | None, save: Callable[[dict], None]) -> CodecStudy:
    """Trains what the earlier results do not have; `save` is called after every run. Raises TrainingFailed if the
    earlier ones have another setting."""
    results = {"format": "onebit-codec-convergence", "version": 1, **_setting(options), "seeds": options.seeds,
               "rows": [], "models": {}, "runs": []}
    if earlier is not None:
        for name in SETTING:
            if earlier[name] != results[name]:
                raise TrainingFailed(f"{name} of the earlier results is {earlier[name]}, not {results[name]}: delete "
                                     "the file to begin again, or give another folder with --out")
        results = earlier
    results["rows"] = [row for row in ROWS if row in options.rows or row in results["rows"]]
    for row in options.rows:
        for model in options.models:
            while (run := CodecStudy(results).next_run(model, row)) is not None:
                _add_codec_run(options, results, model, row, *run)
                save(results)
    return CodecStudy(results)


def _setting(options: argparse.Namespace) -> dict:
    # Losses may depend on the machine: the models are compiled for its processor.
    machine = {"cpu": processor(), "compiler": compiler(options.build.resolve())}
    return {"machine": machine, "ranks": options.ranks, "steps": options.steps,
            "training_options": options.training}


def _train(options: argparse.Namespace, name: str, seed: int, arguments: list[str]) -> dict:
    """Trains once and returns the report; `name` is for messages."""
    print(f"training {name}, seed {seed}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="onebit-convergence-") as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run(
            [options.tool, "-t", str(options.ranks), "--steps", str(options.steps), "--seed", str(seed),
             "--json", report, *arguments, *options.training],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise TrainingFailed(f"{name}, seed {seed}: {done.stderr.strip()}")
        return json.loads(report.read_text(encoding="utf-8"))


def _text_of(report: dict) -> dict:
    return {name: report["text"][name] for name in ("bytes", "fnv1a", "heldout_bytes")}


def _optimizer_run(report: dict) -> dict:
    sent, sent_after = 0, {}
    for step in report["steps"]:
        sent += step["bytes_sent"]
        sent_after[step["step"]] = sent
    evaluations = [{"step": evaluation["step"], "heldout_loss": evaluation["heldout_loss"],
                    "bytes_sent": sent_after[evaluation["step"]]} for evaluation in report["evaluations"]]
    return {**{name: report[name] for name in OF_OPTIMIZER}, "evaluations": evaluations}


def _add_codec_run(options: argparse.Namespace, results: dict, model: str, row: str, seed: int,
                   rate: float) -> None:
    name = f"{model}, {row}, rate {rate:g}"
    report = _train(options, name, seed, [*MODELS[model], *ROWS[row], "--lr", str(rate)])
    text = _text_of(report)
    if results.setdefault("text", text) != text:
        raise TrainingFailed(f"{name}, seed {seed}: the text is {text}, not {results['text']} as of the runs before")
    config = report["config"]
    results["models"].setdefault(model, {
        "parameters": report["parameters"],
        "config": {field: config[field] for field in ("batch", "context", "warmup", "beta1", "beta2")}})
    results["runs"].append({"model": model, "row": row, "seed": seed, "lr": rate,
                            **{field: report[field] for field in OF_CODEC}})
