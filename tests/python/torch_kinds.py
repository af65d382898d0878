# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The optimizers of PyTorch's form, each with options that make its stages short."""

from typing import Any, Callable

from onebit.torch.optim import OnebitAdam, OnebitLamb, ZeroOneAdam
from rank_threads_case import run_ranks

KINDS = {
    OnebitAdam: {"freeze_step": 4},
    OnebitLamb: {"freeze_step": 4},
    ZeroOneAdam: {"var_freeze_step": 4, "local_step_scaler": 2, "local_step_clipper": 2},
}


def of_each_kind(check: Callable[[Callable[..., Any]], None], ranks: int = 1) -> None:
    """Calls check(make) for each class, where make(params, **options) makes an optimizer. Ranks are threads."""

    def on_rank(comm: Any) -> None:
        for kind, options in KINDS.items():
            check(lambda params, k=kind, o=options, **more: k(params, communicator=comm, **o, **more))

    run_ranks(ranks, on_rank)
