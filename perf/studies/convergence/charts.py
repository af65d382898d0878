# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The charts of a study of optimizers, as pictures that stand alone: held-out loss against steps and bytes."""

from __future__ import annotations

import typing

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from convergence.optimizer_study import Study
from reporting.drawing import COLOURS, picture, settings, sizes

MOST_LOSS = 3.2  # nats per byte; what is above is the same for all
STYLES = {"adam": ("o", "grey"), "onebit-adam": ("s", "red"), "zero-one-adam": ("^", "blue"),
          "lamb": ("v", "green"), "onebit-lamb": ("D", "pink")}


def charts(study: Study) -> dict[str, str]:
    """Files by name."""
    return {"loss-steps.svg": _chart(study, "step", "step", lambda axes, values: None),
            "loss-bytes.svg": _chart(study, "bytes_sent", "sent by a rank",
                                     lambda axes, values: sizes(axes, "x", values))}


def _chart(study: Study, x_of: str, label: str, scale: typing.Callable[[Axes, list[float]], None]) -> str:
    with settings():
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axes = figure.subplots()
        positions = []
        for optimizer in study.optimizers:
            marker, colour = STYLES[optimizer]
            shown = [one for one in study.curve(optimizer) if one["heldout_loss"] <= MOST_LOSS]
            positions += [one[x_of] for one in shown]
            axes.plot([one[x_of] for one in shown], [one["heldout_loss"] for one in shown], marker=marker,
                      color=COLOURS[colour], label=optimizer)
        scale(axes, positions)
        axes.set(xlabel=label, ylabel="held-out loss, nats per byte")
        axes.legend()
        what = f"Held-out loss against {'steps' if x_of == 'step' else 'bytes sent by a rank'}"
        ends = ", ".join(f"{name} {study.mean_loss(name):.3f}" for name in study.optimizers
                         if study.mean_loss(name) is not None)
        return picture(figure, x_of, what, f"{what}, one line for each optimizer, mean over {len(study.seeds)} seeds. "
                                           f"At the end: {ends}.")
