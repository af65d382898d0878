# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of the study, in Markdown, and its verdict."""

from __future__ import annotations

import dataclasses
import statistics

from ddp.ddp_results import mean_with_error
from reporting.markdown import table

ALLOWED = 0.005  # of AdamW's held-out loss


@dataclasses.dataclass
class Cell:
    """Runs of AdamW and of another method with the same model, ranks, batch and seeds."""
    dense: list[dict]
    other: list[dict]

    def differences(self) -> list[float]:
        """Differences of held-out losses with the same seed, as shares of AdamW's; of pairs that did not diverge."""
        return [other["held_out_loss"] / dense["held_out_loss"] - 1
                for dense, other in zip(self.dense, self.other, strict=True)
                if None not in (dense["held_out_loss"], other["held_out_loss"])]

    def diverged(self) -> int:
        """Runs that diverged although those of AdamW did not."""
        return sum(other["held_out_loss"] is None and dense["held_out_loss"] is not None
                   for dense, other in zip(self.dense, self.other, strict=True))

    def passes(self) -> bool:
        return not self.diverged() and statistics.mean(self.differences()) <= ALLOWED


def cell_table(cells: list[Cell]) -> list[str]:
    """A row for each cell: means over the seeds, and differences with each."""
    rows = [["model", "batch", "ranks", "AdamW", "accuracy", "rate", cells[0].other[0]["method"], "accuracy",
             "with each seed, %", "against AdamW", "within 0.5 %"]]
    for cell in cells:
        first = cell.other[0]
        each = " ".join(f"{100 * difference:+.1f}" for difference in cell.differences())
        diverged = [f"{cell.diverged()} diverged"] if cell.diverged() else []
        rows.append([first["model"], str(first["batch"]), str(first["ranks"]),
                     _loss_of(cell.dense), _percent(cell.dense), f"{first['rate']:.3g}",
                     _loss_of(cell.other), _percent(cell.other), ", ".join([each, *diverged]),
                     mean_with_error(cell.differences()) if cell.differences() else "",
                     "yes" if cell.passes() else "no"])
    return table(rows, text_columns=1)


def _loss_of(runs: list[dict]) -> str:
    values = [run["held_out_loss"] for run in runs if run["held_out_loss"] is not None]
    return f"{statistics.mean(values):.4f}" if values else ""


def _percent(runs: list[dict]) -> str:
    return f"{100 * statistics.mean(run['accuracy'] for run in runs):.1f} %"


def rate_table(losses: dict[str, dict[float, float | None]]) -> list[str]:
    """Held-out losses by row and rate."""
    rates = sorted({rate for by_rate in losses.values() for rate in by_rate})
    rows = [["seed 0", *(f"{rate:g}" for rate in rates)]]
    for name, by_rate in losses.items():
        rows.append([name, *(_loss(by_rate[rate]) if rate in by_rate else "" for rate in rates)])
    return table(rows, text_columns=1)


def _loss(loss: float | None) -> str:
    return "diverged" if loss is None else f"{loss:.4f}"


def verdict(cells: list[Cell]) -> str:
    passed = sum(cell.passes() for cell in cells)
    return (f"Within 0.5 % of AdamW in {passed} of {len(cells)} cells; {sum(cell.diverged() for cell in cells)} runs "
            f"diverged where AdamW did not: {'keep it' if passed == len(cells) else 'do not keep it'}.")
