# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What a study of optimizers has found: its runs, figures derived from them, and tables in Markdown."""

from __future__ import annotations

import statistics

from reporting.markdown import table

# Optimizers, each with the dense one it is compared with.
OPTIMIZERS = {"adam": "adam", "onebit-adam": "adam", "zero-one-adam": "adam",
              "lamb": "lamb", "onebit-lamb": "lamb"}
OPTIMIZER_STUDY = {"optimizers": list(OPTIMIZERS), "seeds": [0, 1, 2], "steps": 500, "ranks": 4}
# Bits of an element in one exchange.
DENSE_BITS = {"float": 32, "half": 16, "bfloat16": 16}
CODEC_BITS = {"sign": 1, "int2": 2, "fp4": 4, "int8": 8, "int8s": 8, "uint8mm": 8}

# Counts of steps, and the letters that each includes: those of onebit_schedule, and g for gradients that
# are averaged with --codec.
KINDS = {"rounds": "FB1ug", "dense_steps": "FB", "compressed_steps": "B1ug", "local_steps": ".i"}


class Malformed(Exception):
    """Results that contradict themselves."""


def mean(values: list[float | None]) -> float | None:
    """The mean, or None if a value is missing because a run diverged."""
    return None if None in values else statistics.fmean(values)


class Study:
    """All runs, checked."""

    def __init__(self, results: dict):
        """Raises Malformed."""
        if (results.get("format"), results.get("version")) != ("onebit-convergence", 1):
            raise Malformed("not the results of a study of optimizers, version 1")
        self.results = results
        self.optimizers = list(dict.fromkeys(run["optimizer"] for run in results["runs"]))
        self.seeds = list(dict.fromkeys(run["seed"] for run in results["runs"]))
        for run in results["runs"]:
            _check(run)

    def runs(self, optimizer: str) -> list[dict]:
        return [run for run in self.results["runs"] if run["optimizer"] == optimizer]

    def compressed(self) -> list[str]:
        """Optimizers whose dense counterpart was trained as well."""
        return [name for name in self.optimizers
                if OPTIMIZERS[name] != name and OPTIMIZERS[name] in self.optimizers]

    def losses(self, optimizer: str) -> list[float | None]:
        return [run["heldout_loss"] for run in self.runs(optimizer)]

    def mean_loss(self, optimizer: str) -> float | None:
        return mean(self.losses(optimizer))

    def loss_range(self, optimizer: str) -> tuple[float, float] | None:
        """Smallest and largest loss over the seeds; None if a run diverged."""
        losses = self.losses(optimizer)
        return None if None in losses else (min(losses), max(losses))

    def mean_excess(self, optimizer: str) -> float | None:
        """Excess of the mean loss over that of the dense counterpart, relative to the latter."""
        dense = OPTIMIZERS[optimizer]
        if dense not in self.optimizers:
            return None
        loss, base = self.mean_loss(optimizer), self.mean_loss(dense)
        return None if loss is None or base is None else loss / base - 1

    def curve(self, optimizer: str) -> list[dict]:
        """Evaluations as means over the seeds, for the steps that all seeds have."""
        return [{"step": at[0]["step"],
                 "heldout_loss": statistics.fmean(one["heldout_loss"] for one in at),
                 "bytes_sent": statistics.fmean(one["bytes_sent"] for one in at)}
                for at in zip(*(run["evaluations"] for run in self.runs(optimizer)))]

    def dense_bits(self) -> int:
        """Bits per element of the gradient, which has the same type in all runs."""
        return DENSE_BITS[self.results["runs"][0]["config"]["grad_type"]]

    def counted_bits(self, run: dict) -> float:
        """Bits sent per element and step."""
        return 8 * run["bytes_sent_per_rank"] / (self.results["parameters"] * len(run["schedule"]))

    def formula_bits(self, run: dict) -> float:
        """Bits without headers and scales: those of the elements in the rounds that happened, in both
        exchanges of an allreduce."""
        exchanges = 2 * (self.results["ranks"] - 1) / self.results["ranks"]
        code_bits = CODEC_BITS[run["config"].get("codec", "sign")]
        bits = self.dense_bits() * run["dense_steps"] + code_bits * compressed_calls(run)
        return exchanges * bits / len(run["schedule"])


def compressed_calls(run: dict) -> int:
    return run["compressed_steps"] + (1 if run["final_sync_bytes"] > 0 else 0)


def _check(run: dict) -> None:
    """Checks that bytes are those of the formula if steps of a kind all send the same, and that counts
    match the steps."""
    name = f"{run['optimizer']}, seed {run['seed']}"
    if run["bytes_expected"] not in (None, run["bytes_sent_per_rank"]):
        raise Malformed(f"{name}: rank 0 sent {run['bytes_sent_per_rank']} bytes, but by the formula it is "
                        f"{run['bytes_expected']}")
    schedule = run["schedule"]
    counts = {field: sum(schedule.count(kind) for kind in kinds) for field, kinds in KINDS.items()}
    for field, count in counts.items():
        if run[field] != count:
            raise Malformed(f"{name}: {field} is {run[field]}, but there are {count} in the schedule")


def loss_table(study: Study) -> list[str]:
    """Held-out losses by seed, and how far each mean is from that of the dense optimizer."""
    rows = [["optimizer", "learning rate", *(f"seed {seed}" for seed in study.seeds), "mean",
             "least to greatest", "against dense"]]
    for name in study.optimizers:
        excess, limits = study.mean_excess(name), study.loss_range(name)
        rows.append([name, f"{study.runs(name)[0]['config']['lr']:g}", *map(loss_text, study.losses(name)),
                     loss_text(study.mean_loss(name)), f"{limits[0]:.4f} to {limits[1]:.4f}" if limits else "",
                     "" if name == OPTIMIZERS[name] or excess is None else f"{excess:+.2%}"])
    return table(rows, 1)


def bytes_table(study: Study) -> list[str]:
    """Rounds and bytes of rank 0 with the first seed."""
    rows = [["optimizer", "rounds", "dense", "1-bit", "local", "sent", "by formula", "dense sends",
             "bits counted", "formula"]]
    for name in study.optimizers:
        run = study.runs(name)[0]
        dense = study.runs(OPTIMIZERS[name])
        ratio = f"{dense[0]['bytes_sent_per_rank'] / run['bytes_sent_per_rank']:.2f}x" if dense else ""
        rows.append([name, str(run["rounds"]), str(run["dense_steps"]), str(compressed_calls(run)),
                     str(run["local_steps"]), f"{run['bytes_sent_per_rank']} B",
                     "not checked" if run["bytes_expected"] is None else f"{run['bytes_expected']} B", ratio,
                     f"{study.counted_bits(run):.3f}", f"{study.formula_bits(run):.3f}"])
    return table(rows, 1)


def loss_text(loss: float | None) -> str:
    return "diverged" if loss is None else f"{loss:.4f}"
