# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The defaults of a study, and how its learning rates were chosen."""

from __future__ import annotations

from convergence.convergence_results import OPTIMIZERS

STUDY = {"optimizers": list(OPTIMIZERS), "seeds": [0, 1, 2], "steps": 500, "ranks": 4}

# Held-out losses of seed 0 by learning rate, with all else as above and the defaults of train_text; None:
# diverged. The default rates were the best of the first three; higher ones were tried later, to see on which
# side the best one lies.
RATES_TRIED = {
    "adam": {0.001: 2.5615, 0.002: 2.4158, 0.003: 2.3533, 0.004: 2.3253, 0.005: 2.3139, 0.006: 2.3102,
             0.008: 2.3153},
    "onebit-adam": {0.003: 2.3464, 0.004: 2.3281, 0.005: 2.3146, 0.006: 2.3256},
    "zero-one-adam": {0.003: 2.3569, 0.004: 2.3352, 0.005: 2.3476, 0.006: 2.3621},
    "lamb": {0.005: 2.5275, 0.01: 2.3570, 0.02: 2.3165, 0.03: 2.5698},
    "onebit-lamb": {0.005: 2.4285, 0.01: 2.3400, 0.02: None},
}


def best_rate(optimizer: str) -> tuple[float, float]:
    """The best rate of those tried, and its loss."""
    return min(((rate, loss) for rate, loss in RATES_TRIED[optimizer].items() if loss is not None),
               key=lambda tried: tried[1])
