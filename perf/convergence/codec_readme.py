# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The section of README.md about codecs: settings, tables, and which are safe under an unmodified Adam."""

from __future__ import annotations

import math
import shlex

from convergence.codec_study import CODEC_STUDY, DENSE, MODELS, CodecStudy
from convergence.convergence_results import mean
from reporting.markdown import table
from reporting.paragraph import paragraph

SAFE = 0.01  # of dense Adam's loss: what a row may lose on every model and still be called safe
COSTLY = 0.02
# Rows that change Adam itself: its variance is frozen, and momentum or steps are what is sent.
MODIFIED = ("onebit-adam", "zero-one-adam")
# 97.5th percentiles of Student's t by degrees of freedom: of two-sided intervals of 95 %.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
EXAMPLES = {"mlp": "bytes", "transformer": "windows of {context} bytes"}


def _command(study: CodecStudy) -> str:
    """The command, with all options that are not defaults except --build and --out."""
    results, options = study.results, []
    for name, value in {"models": list(results["models"]), "rows": results["rows"], "seeds": study.seeds,
                        "steps": results["steps"], "ranks": results["ranks"]}.items():
        if value != CODEC_STUDY[name]:
            options += [f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    if results["training_options"]:
        options += ["--", *results["training_options"]]
    return shlex.join(["./perf/convergence/run", "--study", "codecs", *options])


def _setting(study: CodecStudy) -> str:
    results = study.results
    models = []
    for model, facts in results["models"].items():
        examples = EXAMPLES[model].format(**facts["config"])
        models.append(f"the {model} has {facts['parameters']} parameters and a batch of "
                      f"{facts['config']['batch']} {examples} per rank")
    config = next(iter(results["models"].values()))["config"]
    extra = f", with {shlex.join(results['training_options'])}" if results["training_options"] else ""
    return paragraph(
        f"{results['steps']} steps, {results['ranks']} ranks, {_seeds(study)}; "
        f"{_list(models)}. beta2 {config['beta2']:g}, {config['warmup']} steps of learning-rate warm-up, then "
        f"half a cosine{extra}; text of {results['text']['bytes']} bytes (FNV-1a {results['text']['fnv1a']}), of "
        f"which {results['text']['heldout_bytes']} are held out. {results['machine']['cpu']}, "
        f"{results['machine']['compiler']}.{_scales(study)}")


def _scales(study: CodecStudy) -> str:
    """Says so where rows were trained before scales ended at parameters."""
    if study.results.get("scales") != "fused":
        return ""
    return f" {_list(MODIFIED)} ran with `--scales fused`, which was their default then."


def _seeds(study: CodecStudy) -> str:
    return f"{'seed' if len(study.seeds) == 1 else 'seeds'} {_list(map(str, study.seeds))}"


def _list(names) -> str:
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _loss_table(study: CodecStudy, model: str) -> list[str]:
    rows = [["gradients or optimizer", "rate", *(f"seed {seed}" for seed in study.seeds), "mean",
             "minus dense Adam", "in %", "sent"]]
    for row in study.rows(model):
        runs, losses = study.runs(model, row), study.losses(model, row)
        first = runs[study.seeds[0]]
        rows.append([row, f"{first['lr']:g}", *map(_loss, losses), _loss(mean(losses)),
                     _difference(study.difference(model, row)) if row != DENSE else "",
                     _percent(study, model, row) if row != DENSE else "",
                     f"{first['bytes_sent_per_rank'] / 1e6:.1f} MB"])
    return table(rows, 1)


def _rate_table(study: CodecStudy, model: str) -> list[str]:
    tried = {row: study.tried(model, row) for row in study.rows(model)}
    rates = sorted({rate for losses in tried.values() for rate in losses})
    return table([[f"seed {study.seeds[0]}", *(f"{rate:g}" for rate in rates)],
                  *([row, *(_loss(losses[rate]) if rate in losses else "" for rate in rates)]
                    for row, losses in tried.items())], 1)


def _loss(loss: float | None) -> str:
    return "diverged" if loss is None else f"{loss:.4f}"


def _difference(difference: tuple[float, float] | None) -> str:
    if difference is None:
        return ""
    value, error = difference
    return f"{value:+.4f}" + (f" ± {error:.4f}" if math.isfinite(error) else "")


def _share(study: CodecStudy, model: str, row: str) -> float | None:
    """The mean difference as a share of dense Adam's mean loss."""
    difference = study.difference(model, row)
    return None if difference is None else difference[0] / mean(study.losses(model, DENSE))


def _percent(study: CodecStudy, model: str, row: str) -> str:
    share = _share(study, model, row)
    return "" if share is None else f"{share:+.2%}"


def is_resolved(study: CodecStudy, difference: tuple[float, float]) -> bool:
    """True if the interval of 95 % around a mean over the seeds does not contain zero."""
    value, error = difference
    return abs(value) > STUDENT[min(max(len(study.seeds) - 1, 1), max(STUDENT))] * error


def _of_models(study: CodecStudy, row: str) -> str:
    """How a row did on each model that has it."""
    texts = []
    for model in _models_of(study, row):
        difference = study.difference(model, row)
        if difference is None:
            texts.append(f"{model} diverged")
            continue
        noise = "" if is_resolved(study, difference) else ", not resolved"
        texts.append(f"{model} {_percent(study, model, row)}{noise}")
    return f"{row} ({'; '.join(texts)})"


def _models_of(study: CodecStudy, row: str) -> list[str]:
    return [model for model in study.models if row in study.rows(model) and DENSE in study.rows(model)]


def worst_share(study: CodecStudy, row: str) -> float:
    """What the row loses on the model where it loses most, as a share of dense Adam's loss."""
    shares = [_share(study, model, row) for model in _models_of(study, row)]
    return math.inf if None in shares else max(shares)


def _verdicts(study: CodecStudy) -> list[str]:
    """What is safe under an unmodified Adam and what is not, by the worst model of each row."""
    rows = [row for row in study.results["rows"] if row != DENSE and _models_of(study, row)]
    plain = [row for row in rows if row not in MODIFIED]
    groups = {
        f"Safe under an unmodified Adam, within {SAFE:.0%} of dense gradients on every model":
            [row for row in plain if worst_share(study, row) <= SAFE],
        f"Costs {SAFE:.0%} to {COSTLY:.0%} on some model":
            [row for row in plain if SAFE < worst_share(study, row) <= COSTLY],
        f"Not safe, more than {COSTLY:.0%} worse on some model":
            [row for row in plain if worst_share(study, row) > COSTLY],
        "For comparison, with a variance that is frozen": [row for row in rows if row in MODIFIED]}
    return [paragraph(f"{head}: {', '.join(_of_models(study, row) for row in rows)}.", bullet="* ")
            for head, rows in groups.items() if rows]


def _feedback(study: CodecStudy) -> list[str]:
    """What error feedback changes, for codecs with both modes."""
    lines = []
    for codec in dict.fromkeys(row.removesuffix("-ef") for row in study.results["rows"]):
        texts = []
        for model in study.models:
            if {f"{codec}-ef", f"{codec}-plain"} <= set(study.rows(model)):
                difference = study.difference(model, f"{codec}-ef", f"{codec}-plain")
                if difference is not None:
                    noise = "" if is_resolved(study, difference) else " (not resolved)"
                    texts.append(f"{model} {_difference(difference)}{noise}")
        if texts:
            lines.append(paragraph(f"{codec}-ef minus {codec}-plain: {'; '.join(texts)}.", bullet="* "))
    if not lines:
        return []
    return [paragraph("Error feedback, each mode at its own best rate; less than zero is better with it:"), "",
            *lines, ""]


def _missing(study: CodecStudy) -> list[str]:
    missing = [f"{row} of the {model}" for row in study.results["rows"] for model in study.results["models"]
               if row not in study.rows(model)]
    missing += [f"the {model}" for model in MODELS if model not in study.results["models"]]
    if not missing:
        return []
    return [paragraph(f"Not trained, or not to the end: {_list(missing)}."), ""]


def codec_section(study: CodecStudy) -> str:
    first = study.seeds[0]
    is_all_checked = all(run["bytes_expected"] is not None for run in study.results["runs"])
    formula = ", to the byte what the formula says" if is_all_checked else ""
    lines = [
        "## Which codecs are safe for the gradients of an unmodified Adam?", "",
        paragraph(
            "Adam's gradients are averaged by a compressed allreduce in every step, with error feedback (`ef`) or "
            "without (`plain`); nothing else about it changes, and its variance stays live. `adam` averages in full "
            f"precision. {_list([f'`{row}`' for row in MODIFIED])} freeze the variance after a fifth of the "
            "steps and compress something else. Written by"), "",
        "```sh", _command(study), "```", "",
        paragraph("which continues where an earlier run ended. `./perf/convergence/run --check` compares this "
                  "section with `codecs.json`."), "",
        _setting(study), "",
        *_missing(study),
        paragraph(
            f"Each row has a learning rate of its own. With seed {first} rates beside the best one so far were "
            "tried until the best had a worse one on either side; then the other seeds were trained at it. The "
            f"loss of seed {first} is therefore the least of several, in every row. \"minus dense Adam\" is "
            "the difference to dense Adam with the same seed, as the mean over the seeds ± its standard error. It "
            "is resolved if the interval of 95% by Student's t does not contain zero. \"sent\" is what rank 0 "
            f"sent in all steps{formula}."), ""]
    for model in study.models:
        lines += [f"### {model}", "", "Held-out loss, nats per byte:", "", *_loss_table(study, model), "",
                  f"Held-out losses of seed {first} by learning rate:", "", *_rate_table(study, model), ""]
    lines += ["### What is safe", "", *_verdicts(study), "", *_feedback(study),
              paragraph(
                  f"This is what {study.results['steps']} steps of {_list('the ' + name for name in study.models)} "
                  f"say, with {_seeds(study)} on one text. Longer runs, larger models and other optimizers were "
                  "not tried."), ""]
    return "\n".join(lines)
