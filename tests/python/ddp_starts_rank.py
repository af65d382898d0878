# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the job of ddp_starts_test.py: ddp_starts_rank.py FOLDER; writes FOLDER/RANK.json.

Each case begins a training with the hook in another way.
"""

import sys
import warnings
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit.torch
from ddp_rank import RANK, RANKS, assert_equal_on_all_ranks
from rank_cases import run_cases

# As in Lightning's DDPStrategy(ddp_comm_state=...), which is written before there is a process group.
EARLY = torch.nn.Linear(96, 64)
EARLY_STATE = onebit.torch.State(EARLY)
RESUMED = torch.nn.Linear(96, 64)
RESUMED_STATE = onebit.torch.State(RESUMED)


class Clock:
    """Stands for time.monotonic, so that iterations take as long as a case wants."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Training:
    """A model whose gradients are numbers that are known."""

    def __init__(self, state=None, model=None, **options):
        self.model = torch.nn.Linear(96, 64) if model is None else model
        self.replica = DistributedDataParallel(self.model)
        self.state = onebit.torch.State(self.replica, **options) if state is None else state
        self.replica.register_comm_hook(self.state, onebit.torch.ddp_hook)
        self.owed = {name: 0.0 for name, _ in self.model.named_parameters()}
        self.largest = 0.0

    def gradient(self, step: int, name: str, like: torch.Tensor, rank: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(10000 * step + 100 * rank + len(name))
        return torch.randn(like.shape, generator=generator)

    def iterate(self, step: int) -> None:
        self.replica.zero_grad()
        self.replica(torch.ones(2, 96)).sum()  # a forward pass, whose result is not used
        loss = sum(
            (each * self.gradient(step, name, each, RANK)).sum() for name, each in self.model.named_parameters()
        )
        loss.backward()
        for name, each in self.model.named_parameters():
            mean = sum(self.gradient(step, name, each, rank) for rank in range(RANKS)) / RANKS
            self.owed[name] = self.owed[name] + mean - each.grad
            self.largest = max(self.largest, mean.norm().item())

    def owed_share(self) -> float:
        """What is missing in the averages so far, as a share of a gradient."""
        return max(each.norm().item() for each in self.owed.values()) / self.largest


# --------------------------------------------------------------------------------------------- cases


def rank_0_is_late() -> dict:
    """It constructs its State once rank 1 has said that it waits."""
    store = dist.distributed_c10d._get_default_store()

    def show(message, *_unused, **_unused_too) -> None:
        store.set("rank 1 waits", str(message))

    if RANK == 0:
        store.wait(["rank 1 waits"])
    patience = 0.1 if RANK == 1 else 600.0
    with mock.patch("onebit.torch._membership._PATIENCE_SECONDS", patience), mock.patch("warnings.showwarning", show):
        onebit.torch.State(torch.nn.Linear(2, 2)).close()
    return {"said": store.get("rank 1 waits").decode()}


def a_hook_without_a_state() -> dict:
    try:
        onebit.torch.ddp_hook(None, None)
    except onebit.InvalidUsage as error:
        return {"said": str(error)}
    return {}


def a_state_made_before_the_group() -> dict:
    """It joins at the first average, and then does what one made later does."""
    before = EARLY_STATE.report().iterations, EARLY_STATE.state_dict()["residuals"]
    EARLY_STATE.revert()  # there is nothing to take back
    early = Training(EARLY_STATE, EARLY)
    late = Training(model=torch.nn.Linear(96, 64))
    for step in range(6):
        early.iterate(step)
        late.iterate(step)
    saved = early.state.state_dict()
    # A state is taken over before the ranks have joined, too, and saved again as it is.
    RESUMED_STATE.load_state_dict(saved)
    kept = RESUMED_STATE.state_dict()
    resumed = Training(RESUMED_STATE, RESUMED)
    resumed.iterate(6)
    early.iterate(6)
    gradients = [[each.grad for each in training.model.parameters()] for training in (early, late, resumed)]
    result = {
        "before": [before[0], len(before[1])],
        "dense": [each.state.report().dense_iterations for each in (early, late, resumed)],
        "is_same": saved["residuals"].keys() == late.state.state_dict()["residuals"].keys() == kept["residuals"].keys(),
        "is_kept": all(torch.equal(kept["residuals"][name], blob) for name, blob in saved["residuals"].items()),
        "owed": [early.owed_share(), resumed.owed_share()],
        "finite": all(bool(torch.isfinite(each).all()) for each in gradients[2]),
    }
    late.iterate(6)
    result["is_equal"] = all(map(torch.equal, gradients[0], [each.grad for each in late.model.parameters()]))
    for each in (early, late, resumed):
        each.state.close()
    return result


def auto(compressed_seconds: float) -> dict:
    clock = Clock()
    with mock.patch("onebit.torch.ddp.time", clock):
        training = Training(codec="auto")
        bytes_sent = []
        for step in range(26):
            before = training.state.report().bytes_sent
            training.iterate(step)
            bytes_sent.append(training.state.report().bytes_sent - before)
            # Twice the time where something else has the machine.
            seconds = 1.0 if bytes_sent[-1] > 20000 else compressed_seconds
            clock.now += 2 * seconds if step in (5, 8) else seconds
    report = training.state.report()
    assert_equal_on_all_ranks(str(report.trial))
    result = {
        "sent": ["dense" if each > 20000 else "fp4" for each in bytes_sent],
        "dense_iterations": report.dense_iterations,
        "trial": [report.trial.dense_seconds, report.trial.compressed_seconds, report.trial.is_compressed],
        "text": str(report),
        "owed": training.owed_share(),
        "residuals": len(report.residual_norms),
    }
    training.state.close()
    return result


def auto_where_the_network_is_slow() -> dict:
    return auto(0.5)


def auto_where_the_network_is_free() -> dict:
    return auto(1.1)


def auto_where_it_makes_no_difference() -> dict:
    return auto(0.99)


def an_early_state_again() -> dict:
    """A training that goes back to its beginning has its first iterations in full precision again."""
    training = Training()
    early = training.state.state_dict()
    dense = []
    for step in range(8):
        if step == 4:
            training.state.load_state_dict(early)
        before = training.state.report().dense_iterations
        training.iterate(step)
        dense.append(training.state.report().dense_iterations - before)
    training.state.close()
    return {"dense": dense}


def coarse_codecs() -> dict:
    """Codecs that Adam does not bear are said to be such, once each time that a State is made."""
    texts = {}
    for codec in ("sign", "int2", "fp4", "int8", "bf16", "auto"):
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            training = Training(codec=codec)
            training.iterate(0)
            training.state.close()
        texts[codec] = [str(each.message) for each in recorded if "live variance" in str(each.message)]
    return texts


CASES = (
    a_state_made_before_the_group,
    auto_where_the_network_is_slow,
    auto_where_the_network_is_free,
    auto_where_it_makes_no_difference,
    an_early_state_again,
    coarse_codecs,
    rank_0_is_late,
    a_hook_without_a_state,
)

if __name__ == "__main__":
    run_cases(CASES, *sys.argv[1:])
