# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the job of works_with_test.py: works_with_rank.py FOLDER; writes FOLDER/RANK.json.

Each case trains with the hook, or with OnebitAdam, beside another part of PyTorch, and in the same way without
compression. Its name is that of a row in docs/python.md.
"""

import contextlib
import copy
import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import onebit.torch
from ddp_rank import CLASSES, HIDDEN, RANK, RANKS, assert_equal_on_all_ranks, batch, digest, network

STEPS = 12
RATE = 2e-3


class Absent(Exception):
    """This PyTorch does not have the part."""


class Training:
    """A model that ranks train together: by the hook of DDP, by OnebitAdam, or by DDP alone."""

    def __init__(self, way: str, model: torch.nn.Module, bucket_cap_mb: float = 0.1):
        self.model = model
        self.replica = model
        self.hook = None
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if way == "optimizer":
            self.optimizer = onebit.torch.optim.OnebitAdam(trained, RATE, betas=(0.9, 0.99), freeze_step=STEPS // 2)
        else:
            self.replica = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
            self.optimizer = torch.optim.Adam(trained, RATE, betas=(0.9, 0.99))
        if way == "hook":
            self.hook = onebit.torch.State(self.replica)
            self.replica.register_comm_hook(self.hook, onebit.torch.ddp_hook)
        self.forward = self.replica
        self.before_step = lambda: None
        self.after_step = lambda: None

    def loss(self, step: int) -> torch.Tensor:
        points, classes = batch(step)
        return torch.nn.functional.cross_entropy(self.forward(points), classes)

    def step(self, number: int, micro_steps: int = 1) -> float:
        self.optimizer.zero_grad()
        for micro_step in range(micro_steps):
            is_last = micro_step == micro_steps - 1
            may_wait = isinstance(self.replica, DistributedDataParallel) and not is_last
            with self.replica.no_sync() if may_wait else contextlib.nullcontext():
                loss = self.loss(number * micro_steps + micro_step) / micro_steps
                loss.backward()
        self.before_step()
        self.optimizer.step()
        self.after_step()
        return loss.item() * micro_steps

    def digest(self) -> str:
        return digest(parameter.detach() for parameter in self.model.parameters())

    def close(self) -> None:
        if self.hook is not None:
            self.hook.close()
        elif isinstance(self.optimizer, onebit.torch.optim.OnebitAdam):
            self.optimizer.close()


def steps(training: Training, micro_steps: int = 1) -> float:
    """Trains, with equal parameters on all ranks after every step; returns the last loss, averaged."""
    for number in range(STEPS):
        loss = training.step(number, micro_steps)
        assert_equal_on_all_ranks(training.digest())
    losses = torch.tensor([loss])
    dist.all_reduce(losses)
    return losses.item() / RANKS


def gradient_accumulation(way: str) -> tuple:
    training = Training(way, network())
    return training, steps(training, micro_steps=3)


def learning_rate_schedulers(way: str) -> tuple:
    training = Training(way, network())
    warm_up = torch.optim.lr_scheduler.LinearLR(training.optimizer, 0.5, total_iters=4)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(training.optimizer, STEPS)
    scheduler = torch.optim.lr_scheduler.SequentialLR(training.optimizer, [warm_up, decay], milestones=[4])
    rates = []
    training.before_step = lambda: rates.append(training.optimizer.param_groups[0]["lr"])
    training.after_step = scheduler.step
    loss = steps(training)
    assert len(set(rates)) > STEPS / 2, rates
    return training, loss


def compiled_models(way: str) -> tuple:
    if not hasattr(torch, "compile"):
        raise Absent("torch.compile came with PyTorch 2.0")
    training = Training(way, network(), bucket_cap_mb=1)  # the least of which its DDP knows
    # Its graph is cut at buckets, and traced backward, without a compiler of C++.
    training.forward = torch.compile(training.replica, backend="aot_eager")
    return training, steps(training)


class Checkpointed(torch.nn.Module):
    """Computes the middle of the network anew in the backward pass."""

    def __init__(self):
        super().__init__()
        self.layers = network()

    def forward(self, points):
        hidden = self.layers[0](points)
        options = {} if torch.__version__ < "2" else {"use_reentrant": False}
        return self.layers[4](checkpoint(lambda x: self.layers[3](self.layers[2](x)), hidden.relu(), **options))


def activation_checkpointing(way: str) -> tuple:
    training = Training(way, Checkpointed())
    return training, steps(training)


class Adapted(torch.nn.Module):
    """A frozen network with a trained update of low rank beside its largest matrix (LoRA)."""

    def __init__(self):
        super().__init__()
        self.base = network()
        self.base.requires_grad_(False)
        self.down = torch.nn.Linear(HIDDEN, 16, bias=False)
        self.up = torch.nn.Linear(16, HIDDEN, bias=False)
        self.head = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, points):
        hidden = self.base[1](self.base[0](points))
        return self.head((self.base[2](hidden) + self.up(self.down(hidden))).relu())


def adapters(way: str) -> tuple:
    torch.manual_seed(7)
    training = Training(way, Adapted())
    frozen = digest(training.model.base.parameters())
    loss = steps(training)
    assert digest(training.model.base.parameters()) == frozen
    if training.hook is not None:
        assert set(training.hook.report().residual_norms) == {"down.weight", "up.weight", "head.weight"}
    return training, loss


def averaged_models(way: str) -> tuple:
    """An exponential moving average of the module that DDP wraps, and one that is copied by hand."""
    training = Training(way, network())
    average = AveragedModel(training.model, avg_fn=lambda mean, value, _: 0.9 * mean + 0.1 * value)
    start = copy.deepcopy(training.model)
    training.after_step = lambda: average.update_parameters(training.model)
    loss = steps(training)
    assert_equal_on_all_ranks(digest(parameter.detach() for parameter in average.parameters()))
    for mean, now, then in zip(average.parameters(), training.model.parameters(), start.parameters()):
        assert not torch.equal(mean, now) and not torch.equal(mean, then)
    return training, loss


def clipping(way: str) -> tuple:
    """Of the average, in each step: behind DDP by PyTorch, and by the optimizer's own option."""
    training = Training(way, network())
    if way == "optimizer":
        training.close()
        training.optimizer = onebit.torch.optim.OnebitAdam(
            training.model.parameters(), RATE, betas=(0.9, 0.99), freeze_step=STEPS // 2, max_grad_norm=0.5)
        return training, steps(training)

    def clip():
        norm = torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.5)
        assert_equal_on_all_ranks(norm.item())

    training.before_step = clip
    return training, steps(training)


def shared_parameters(way: str) -> tuple:
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = network()
            self.again = torch.nn.Linear(HIDDEN, HIDDEN)
            self.again.weight = self.layers[2].weight

        def forward(self, points):
            hidden = self.layers[2](self.layers[0](points).relu()).relu()
            return self.layers[4](self.again(hidden).relu())

    training = Training(way, Tied())
    return training, steps(training)


CASES = (gradient_accumulation, learning_rate_schedulers, compiled_models, activation_checkpointing, adapters,
         averaged_models, clipping, shared_parameters)


def main() -> None:
    meeting = f"file://{sys.argv[1]}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    found = {}
    for case in CASES:
        try:
            dense, expected = case("dense")
            del dense
            found[case.__name__] = {"dense": expected}
            for way in ("hook", "optimizer"):
                training, found[case.__name__][way] = case(way)
                if way == "hook":
                    report = training.hook.report()
                    assert report.iterations == STEPS and report.dense_iterations == 2, report
                    assert report.bytes_sent < 0.5 * report.dense_bytes, report
                training.close()
        except Absent as reason:
            found[case.__name__] = str(reason)
    path = pathlib.Path(sys.argv[1], f"{RANK}.json")
    path.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
