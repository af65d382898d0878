# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs train_text and keeps the parts of its reports that the study needs."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from comparison.compare_machine import facts

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVALUATE_EVERY_PERCENT = 5
# Fields kept of each run's report.
KEPT = ("optimizer", "seed", "config", "heldout_loss", "diverged_at", "skipped_steps", "schedule", "rounds",
        "dense_steps", "compressed_steps", "local_steps", "final_sync_bytes", "bytes_sent_per_rank",
        "bytes_expected")


class TrainingFailed(Exception):
    """train_text ended with an error."""


def train(options: argparse.Namespace, name: str, seed: int, arguments: list[str]) -> dict:
    """Trains once and returns the report; `name` is for errors."""
    with tempfile.TemporaryDirectory(prefix="onebit-convergence-") as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run(
            [options.tool, "-t", str(options.ranks), "--steps", str(options.steps), "--seed", str(seed),
             "--json", report, *arguments, *options.training],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise TrainingFailed(f"{name}, seed {seed}: {done.stderr.strip()}")
        return json.loads(report.read_text(encoding="utf-8"))


def kept_of(report: dict) -> dict:
    """The entry of one run in results.json."""
    sent, sent_after = 0, {}
    for step in report["steps"]:
        sent += step["bytes_sent"]
        sent_after[step["step"]] = sent
    run = {name: report[name] for name in KEPT}
    run["evaluations"] = [{"step": evaluation["step"], "heldout_loss": evaluation["heldout_loss"],
                           "bytes_sent": sent_after[evaluation["step"]]}
                          for evaluation in report["evaluations"]]
    return run


def train_all(options: argparse.Namespace) -> dict:
    """Trains everything and returns the content of results.json."""
    reports = []
    for optimizer in options.optimizers:
        for seed in options.seeds:
            print(f"training {optimizer}, seed {seed}", file=sys.stderr, flush=True)
            reports.append(train(options, optimizer, seed, ["--optimizer", optimizer, "--eval-every",
                                                            str(EVALUATE_EVERY_PERCENT)]))
    machine = facts(ROOT, options.build.resolve())
    first = reports[0]
    return {"format": "onebit-convergence", "version": 1,
            # Facts that losses may depend on: the model is compiled for the processor.
            "machine": {name: machine[name] for name in ("cpu", "compiler")},
            "ranks": options.ranks, "steps": options.steps, "parameters": first["parameters"],
            "text": {name: first["text"][name] for name in ("bytes", "fnv1a", "heldout_bytes")},
            "training_options": options.training,
            "runs": [kept_of(report) for report in reports]}
