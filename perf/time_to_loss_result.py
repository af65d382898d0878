# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""When a training run has reached a loss, and what two optimizers make of that."""

from __future__ import annotations

import dataclasses

COLUMNS = ["rate", "optimizer", "final loss", "target", "step", "time to target", "speed-up",
           "whole run", "link sent"]
TEXT_COLUMNS = 2  # the others are figures
# Of each optimizer: what its speed is the speed of.
ALLREDUCE = {"adam": "onebit dense", "onebit-adam": "onebit dense until --freeze, then onebit 1-bit"}
ALLREDUCES = "\n".join(f"allreduce of {optimizer}: {name}" for optimizer, name in ALLREDUCE.items())


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of train_text on the lab."""

    rate: str
    optimizer: str
    training: dict  # train_text's report
    lab: dict  # the lab's

    @property
    def final_loss(self) -> float | None:
        return self.training["heldout_loss"]

    @property
    def link_bytes(self) -> int:
        """Sent over the link of the host that sent most."""
        return max(link["sent_bytes"] for link in self.lab["links"])

    def first_at(self, target: float) -> dict | None:
        """The first evaluation at the target or below; None: it was never reached."""
        return next((evaluation for evaluation in self.training["evaluations"]
                     if evaluation["heldout_loss"] is not None
                     and evaluation["heldout_loss"] <= target), None)

    def as_json(self, target: float) -> dict:
        reached = self.first_at(target)
        return {
            "rate": self.rate,
            "rate_bits_per_second": self.lab["rate_bits_per_second"],
            "optimizer": self.optimizer,
            "allreduce": ALLREDUCE[self.optimizer],
            "final_loss": self.final_loss,
            "diverged_at": self.training["diverged_at"],
            "target_loss": target,
            "step_at_target": reached["step"] if reached else None,
            "seconds_to_target": reached["seconds"] if reached else None,
            "seconds": self.training["seconds"],
            "bytes_sent_per_rank": self.training["bytes_sent_per_rank"],
            "link_bytes": self.link_bytes,
            "evaluations": self.training["evaluations"],
        }


def table(results: list[dict]) -> str:
    """Of Run.as_json; the speed-up is over dense Adam at the same rate."""
    dense = {result["rate"]: result["seconds_to_target"] for result in results
             if result["optimizer"] == "adam"}
    rows = [COLUMNS]
    for result in results:
        seconds, base = result["seconds_to_target"], dense[result["rate"]]
        rows.append([
            result["rate"],
            result["optimizer"],
            f"diverged at step {result['diverged_at']}" if result["final_loss"] is None
            else f"{result['final_loss']:.4f}",
            f"{result['target_loss']:.4f}",
            "-" if seconds is None else str(result["step_at_target"]),
            "never reached" if seconds is None else f"{seconds:.2f} s",
            "-" if seconds is None or base is None else f"{base / seconds:.2f}x",
            f"{result['seconds']['total']:.2f} s",
            f"{result['link_bytes'] / 1e6:.1f} MB",
        ])
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if column < TEXT_COLUMNS else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows)
