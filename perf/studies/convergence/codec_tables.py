# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of a study of codecs in Markdown, and which codecs are safe under an unmodified Adam."""

from __future__ import annotations

import math
import textwrap

from convergence.codec_study import DENSE, CodecStudy
from convergence.optimizer_study import loss_text, mean
from reporting.markdown import table

SAFE = 0.01  # of dense Adam's loss: what a row may lose on every model and still be called safe
COSTLY = 0.02
# Rows that change Adam itself: its variance is frozen, and momentum or steps are what is sent.
MODIFIED = ("onebit-adam", "zero-one-adam")
# 97.5th percentiles of Student's t by degrees of freedom: of two-sided intervals of 95 %.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def paragraph(text: str, bullet: str = "") -> str:
    return textwrap.fill(text, 105, initial_indent=bullet, subsequent_indent=" " * len(bullet),
                         break_on_hyphens=False, break_long_words=False)


def _loss_table(study: CodecStudy, model: str) -> list[str]:
    rows = [["gradients or optimizer", "rate", *(f"seed {seed}" for seed in study.seeds), "mean",
             "minus dense Adam", "in %", "sent"]]
    for row in study.rows(model):
        runs, losses = study.runs(model, row), study.losses(model, row)
        first = runs[study.seeds[0]]
        rows.append([row, f"{first['lr']:g}", *map(loss_text, losses), loss_text(mean(losses)),
                     _difference(study.difference(model, row)) if row != DENSE else "",
                     _percent(study, model, row) if row != DENSE else "",
                     f"{first['bytes_sent_per_rank'] / 1e6:.1f} MB"])
    return table(rows, 1)


def _rate_table(study: CodecStudy, model: str) -> list[str]:
    tried = {row: study.tried(model, row) for row in study.rows(model)}
    rates = sorted({rate for losses in tried.values() for rate in losses})
    return table([[f"seed {study.seeds[0]}", *(f"{rate:g}" for rate in rates)],
                  *([row, *(loss_text(losses[rate]) if rate in losses else "" for rate in rates)]
                    for row, losses in tried.items())], 1)


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


def codec_tables(study: CodecStudy) -> list[str]:
    """Everything, as lines."""
    lines = []
    for model in study.models:
        lines += [f"### {model}", "", "Held-out loss, nats per byte:", "", *_loss_table(study, model), "",
                  f"Held-out losses of seed {study.seeds[0]} by learning rate:", "", *_rate_table(study, model), ""]
    return [*lines, "### What is safe", "", *_verdicts(study), "", *_feedback(study)]
