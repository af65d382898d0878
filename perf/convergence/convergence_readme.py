# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The README.md of a study: what was trained, tables, and whether the losses are close."""

from __future__ import annotations

import shlex

from convergence.charts import MOST_LOSS
from convergence.defaults import RATES_TRIED, STUDY, best_rate
from convergence.convergence_results import CLOSE, OPTIMIZERS, Study, compressed_calls
from convergence.convergence_training import EVALUATE_EVERY_PERCENT
from reporting.markdown import table
from reporting.paragraph import paragraph

ZERO_ONE = "zero-one-adam"

TITLE = """<!-- SPDX-FileCopyrightText: The onebit authors
     SPDX-License-Identifier: Apache-2.0 -->
# Do compressed optimizers learn as well as dense ones?
"""
HEAD = TITLE + """
Written by `perf/convergence/run`, which trains optimizers of `train_text` with the same model, text,
seeds and number of steps, and needs no network: ranks are threads. Run it again with
"""

CHECK = "`./perf/convergence/run --check` compares this file and the charts with `results.json`."

CHARTS = """![held-out loss against steps](loss-steps.svg)

![held-out loss against bytes sent by a rank](loss-bytes.svg)
"""


def _command(study: Study) -> str:
    """The command, with all options that are not defaults except --build and --out."""
    options = []
    for name, value in {"optimizers": study.optimizers, "seeds": study.seeds,
                        "steps": study.results["steps"], "ranks": study.results["ranks"]}.items():
        if value != STUDY[name]:
            options += [f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    if study.results["training_options"]:
        options += ["--", *study.results["training_options"]]
    return shlex.join(["./perf/convergence/run", *options])


def _setting(study: Study) -> str:
    results, config = study.results, study.results["runs"][0]["config"]
    extra = f", with {shlex.join(results['training_options'])}" if results["training_options"] else ""
    return paragraph(
        f"{results['parameters']} parameters, {results['steps']} steps, {results['ranks']} ranks x batch "
        f"{config['batch']}, beta2 {config['beta2']:g}, {config['warmup']} steps of learning-rate warm-up, "
        f"then half a cosine{extra}; text of {results['text']['bytes']} bytes (FNV-1a "
        f"{results['text']['fnv1a']}), of which {results['text']['heldout_bytes']} are held out. "
        f"{results['machine']['cpu']}, {results['machine']['compiler']}.")


def _tried(optimizer: str, default: float) -> str:
    """Lists the loss of each rate, and how far the best one is from the default and from the dense
    optimizer's best."""
    losses, dense = RATES_TRIED[optimizer], OPTIMIZERS[optimizer]
    best, least = best_rate(optimizer)
    verdict = f"least at {best:g}"
    if best == default:
        verdict += ", the default"
    elif losses.get(default):
        verdict += f", {1 - least / losses[default]:.1%} below the default"
    if optimizer != dense:
        verdict += f"; {least / best_rate(dense)[1] - 1:+.1%} against the least of {dense}"
    figures = ", ".join(f"{_loss(loss)} at {rate:g}" for rate, loss in losses.items())
    return paragraph(f"{optimizer}: {figures}; {verdict}.", bullet="* ")


def _rates(study: Study) -> list[str]:
    """Describes the rates of the table, if they are the defaults."""
    if study.results["training_options"]:
        return []
    return [paragraph(
        "Learning rates are the defaults of `train_text`. Others were tried with seed 0, "
        f"{STUDY['steps']} steps and {STUDY['ranks']} ranks, on another machine and with `--scales fused`. "
        "Held-out losses:"), "",
        *(_tried(name, study.runs(name)[0]["config"]["lr"]) for name in study.optimizers), ""]


def _loss(loss: float | None, run: dict | None = None) -> str:
    if loss is not None:
        return f"{loss:.4f}"
    return "diverged" if run is None else f"diverged at {run['diverged_at']}"


def _loss_table(study: Study) -> list[str]:
    rows = [["optimizer", "learning rate", *(f"seed {seed}" for seed in study.seeds), "mean",
             "least to greatest", "against dense"]]
    for name in study.optimizers:
        runs = study.runs(name)
        excess = study.mean_excess(name)
        against = "" if name == OPTIMIZERS[name] or excess is None else f"{excess:+.2%}"
        limits = study.loss_range(name)
        rows.append([name, f"{runs[0]['config']['lr']:g}",
                     *(_loss(run["heldout_loss"], run) for run in runs), _loss(study.mean_loss(name)),
                     f"{limits[0]:.4f} to {limits[1]:.4f}" if limits else "", against])
    return table(rows, 1)


def _bytes_table(study: Study) -> list[str]:
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


def _reading(study: Study) -> str:
    """Explains the columns of the table of bytes."""
    has_zero_one = ZERO_ONE in study.optimizers
    is_all_checked = all(run["bytes_expected"] is not None for run in study.results["runs"])
    bits = study.dense_bits()
    return paragraph(
        'A step of 0/1 Adam may be dense and 1-bit at once; "1-bit" includes its last sync, which is no step.'
        if has_zero_one else "",
        '"sent" is what rank 0 handed to its transport in all steps' +
        (" and in the sync that ends a run of 0/1 Adam" if has_zero_one else "") +
        ", headers and scales included.",
        '"by formula" follows from the kinds of the steps by the formulas of `perf/common/wire_bounds.h`; `run` '
        "fails where it is not what was sent, to the byte.",
        "" if is_all_checked else "It is not checked where not all steps of a kind send the same, as when "
        "gradients are clipped, steps were skipped, or layers are optimized one by one.",
        '"formula" leaves headers and scales out: F bits for every dense round and 1 for every compressed '
        "one, in the two exchanges of an allreduce, 2(n-1)/n, over all steps; "
        f"F is {bits} here, the bits of a gradient's element.",
        f"Published figures have F = 16{', too' if bits == 16 else ', and so half of the dense share'}.")


def _curves(study: Study) -> str:
    """Explains the charts."""
    return paragraph(
        f"Means over the seeds, evaluated every {EVALUATE_EVERY_PERCENT} % of the steps; points above "
        f"{MOST_LOSS:g} nats per byte are left out.",
        "In the middle of an interval of 0/1 Adam each rank evaluates its share of the held-out text with "
        "its own parameters." if ZERO_ONE in study.optimizers else "")


def _claims(study: Study) -> list[str]:
    lines = []
    for name in study.compressed():
        dense, excess = OPTIMIZERS[name], study.mean_excess(name)
        verdict = "is" if excess is not None and abs(excess) <= CLOSE else "is NOT"
        lines.append(f"* {name} {verdict} within {CLOSE:.0%} of {dense}, in the mean over {len(study.seeds)} "
                     f"seeds.{_overlap(study, name, dense)}")
    return lines


def _overlap(study: Study, name: str, dense: str) -> str:
    """Compares the gap with the spread."""
    limits = study.loss_range(name), study.loss_range(dense)
    if None in limits:
        return ""
    is_apart = max(low for low, _ in limits) > min(high for _, high in limits)
    return f" Their ranges {'do not ' if is_apart else ''}overlap."


def readme(study: Study) -> str:
    return "\n".join([
        HEAD, "```sh", _command(study), "```", "", CHECK, "", _setting(study), "", *_rates(study),
        "Held-out loss, nats per byte:", "", *_loss_table(study), "", *_claims(study), "",
        f"Rounds and bytes of rank 0, seed {study.seeds[0]}:", "", *_bytes_table(study), "",
        _reading(study), "", CHARTS, _curves(study), ""])
