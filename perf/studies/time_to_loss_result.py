# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The time at which a training run reached a loss, and comparisons of such times."""

from __future__ import annotations

import dataclasses
import textwrap

COLUMNS = ["rate", "optimizer", "final loss", "target", "step", "time to target", "over dense",
           "over 1-bit Adam", "published", "whole run", "rounds", "link sent"]
TEXT_COLUMNS = 2  # the others are figures
WIDTH = 105


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to train, as options of train_text."""

    optimizer: str
    dense: str  # the method whose final loss is the target
    allreduce: str
    options: tuple[str, ...] = ()
    steps: int = 1  # times those of the others


_DENSE, _TWO_STAGES = "onebit dense", "onebit dense until --freeze, then onebit 1-bit"
METHODS = {
    "adam": Method("adam", "adam", _DENSE),
    "adam-fp4": Method("adam", "adam", "gradients in fp4 with error feedback", ("--codec", "fp4")),
    "onebit-adam": Method("onebit-adam", "adam", _TWO_STAGES),
    "zero-one-adam": Method(
        "zero-one-adam", "adam",
        "onebit 1-bit, in ever fewer steps, and dense where the variance is refreshed"),
    "diloco-fp4": Method(
        "adam", "adam", "every 15 steps in fp4, of twice as many steps, in 4 parts, each while 3 steps are made",
        ("--outer", "every=15,merge=0.5,fragments=4,overlap=3", "--codec", "fp4"), steps=2),
    "lamb": Method("lamb", "lamb", _DENSE),
    "onebit-lamb": Method("onebit-lamb", "lamb", _TWO_STAGES),
}
# The best end-to-end speed-ups of the papers, with their baselines.
PUBLISHED = {"onebit-adam": "3.3x dense", "zero-one-adam": "2x 1-bit Adam", "onebit-lamb": "2.8x dense"}
_PAPERS = {
    "onebit-adam": "1-bit Adam over Adam: BERT-Large, up to 256 GPUs, Ethernet with an effective 4.1 Gbit/s",
    "zero-one-adam": "0/1 Adam over 1-bit Adam: up to 128 GPUs, Ethernet with an effective 2.7 Gbit/s",
    "onebit-lamb": "1-bit LAMB over LAMB: BERT-Large, up to 256 GPUs, an effective bandwidth not known to us",
}
_ZERO_ONE_EVALUATIONS = (
    "zero-one-adam: in an evaluation between two syncs each rank takes its own parameters, for its share of the "
    "held-out text. No single model has that loss then; the sync that would make one is not in the time.")


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of train_text on the lab."""

    rate: str
    optimizer: str  # a name of METHODS
    training: dict  # train_text's report
    lab: dict  # the lab's

    @property
    def final_loss(self) -> float | None:
        return self.training["heldout_loss"]

    @property
    def link_bytes(self) -> int:
        """Bytes sent over the link of the host that sent most."""
        return max(link["sent_bytes"] for link in self.lab["links"])

    def first_at(self, target: float) -> dict | None:
        """The first evaluation at the target or below, or None."""
        return next((evaluation for evaluation in self.training["evaluations"]
                     if evaluation["heldout_loss"] is not None
                     and evaluation["heldout_loss"] <= target), None)

    def as_json(self, target: float) -> dict:
        reached = self.first_at(target)
        return {
            "rate": self.rate,
            "rate_bits_per_second": self.lab["rate_bits_per_second"],
            "optimizer": self.optimizer,
            "allreduce": METHODS[self.optimizer].allreduce,
            "final_loss": self.final_loss,
            "diverged_at": self.training["diverged_at"],
            "target_loss": target,
            "step_at_target": reached["step"] if reached else None,
            "seconds_to_target": reached["seconds"] if reached else None,
            "seconds": self.training["seconds"],
            "parameters": self.training["parameters"],
            "rounds": self.training["rounds"],
            "bytes_sent_per_rank": self.training["bytes_sent_per_rank"],
            "link_bytes": self.link_bytes,
            "evaluations": self.training["evaluations"],
        }


def speedup(result: dict, results: list[dict], base: str) -> str:
    """How many times sooner than `base` the optimizer reaches the loss at the same rate."""
    same = [other for other in results if other["rate"] == result["rate"] and other["optimizer"] == base
            and other["target_loss"] == result["target_loss"]]
    times = [result["seconds_to_target"], *(other["seconds_to_target"] for other in same)]
    return f"{times[1] / times[0]:.2f}x" if same and None not in times else "-"


def table(results: list[dict]) -> str:
    """The table of results of Run.as_json."""
    rows = [COLUMNS]
    for result in results:
        optimizer, seconds = result["optimizer"], result["seconds_to_target"]
        rows.append([
            result["rate"],
            optimizer,
            f"diverged at step {result['diverged_at']}" if result["final_loss"] is None
            else f"{result['final_loss']:.4f}",
            f"{result['target_loss']:.4f}",
            "-" if seconds is None else str(result["step_at_target"]),
            "never reached" if seconds is None else f"{seconds:.2f} s",
            speedup(result, results, METHODS[optimizer].dense),
            speedup(result, results, "onebit-adam"),
            PUBLISHED.get(optimizer, ""),
            f"{result['seconds']['total']:.2f} s",
            str(result["rounds"]),
            f"{result['link_bytes'] / 1e6:.1f} MB",
        ])
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if column < TEXT_COLUMNS else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows)


def notes(results: list[dict], cores: int) -> list[str]:
    """Caveats, one paragraph each."""
    optimizers = {result["optimizer"] for result in results}
    paragraphs = []
    if "zero-one-adam" in optimizers:
        paragraphs.append(_ZERO_ONE_EVALUATIONS)
    papers = [text for optimizer, text in _PAPERS.items() if optimizer in optimizers]
    if papers:
        paragraphs.append(
            f"published: up to so many times the training throughput. {'; '.join(papers)}. Here the model has "
            f"{results[0]['parameters'] / 1e6:.2f} million parameters, all hosts share {cores} cores, so that "
            "computing and compressing are a larger share of a step, and links have the rates above; the time "
            "is that to a loss.")
    return [textwrap.fill(paragraph, WIDTH, break_on_hyphens=False) for paragraph in paragraphs]
