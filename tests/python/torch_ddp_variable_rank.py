# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of torch_ddp_variable_test.py: torch_ddp_variable_rank.py FOLDER HOW [CASE...]; writes
FOLDER/RANK.json.

Trainers that know nothing of onebit, unless HOW is "explicit": then the line of the guide follows each wrapper.
HOW "half" has the variable on rank 0 only, and "differing" another value on rank 1.
"""

import copy
import os
import sys

HOW = sys.argv[2]
if HOW == "half" and os.environ["RANK"] == "1":
    del os.environ["ONEBIT_TORCH_DDP"]
if HOW == "differing" and os.environ["RANK"] == "1":
    os.environ["ONEBIT_TORCH_DDP"] = "int8"

# pylint: disable=wrong-import-position
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rank_cases import RANK, found_by, write

VOCABULARY = 64


def wrapped(model: torch.nn.Module, scaler=None, kind=DistributedDataParallel, **options):
    replica = kind(model, **options)
    if HOW == "explicit":
        import onebit.torch

        state = onebit.torch.State(replica, codec="fp4", dense_iterations=1, grad_scaler=scaler)
        replica.register_comm_hook(state, onebit.torch.ddp_hook)
    return replica


def network(seed: int, hidden: int = 256) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 64))


def batches(count: int, seed: int = 0):
    """Points of this rank."""
    draw = torch.Generator().manual_seed(100 * seed + RANK)
    return [torch.randn(32, 64, generator=draw) for _ in range(count)]


def loss_of(model: torch.nn.Module, points: torch.Tensor) -> torch.Tensor:
    return (model(points) - points.roll(1, 1)).square().mean()


class Evidence:
    """What a training was, to the bit."""

    def __init__(self) -> None:
        self.losses = []

    def add(self, loss: torch.Tensor) -> None:
        self.losses.append(loss.item().hex())

    def of(self, *models: torch.nn.Module) -> dict:
        sums = [p.double().sum().item().hex() for model in models for p in model.parameters()]
        return {"losses": self.losses, "parameters": sums}


def plain_loop() -> dict:
    """AdamW with clipping, several buckets, a subclass of the wrapper, and a model that has ended when the program
    does."""

    class Wrapper(DistributedDataParallel):
        pass

    model = wrapped(network(0), kind=Wrapper, bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    evidence = Evidence()
    for points in batches(8):
        optimizer.zero_grad()
        loss = loss_of(model, points)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        evidence.add(loss)
    return evidence.of(model)


class LanguageModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(VOCABULARY, 64)
        self.block = torch.nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(64, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens)))


def micro_steps() -> dict:
    """The loop of nanoGPT: gradients of three micro-steps are averaged by the last one."""
    model = wrapped(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.99))
    draw = torch.Generator().manual_seed(RANK)
    evidence = Evidence()
    for _ in range(5):
        for micro_step in range(3):
            model.require_backward_grad_sync = micro_step == 2
            tokens = torch.randint(VOCABULARY, (4, 17), generator=draw)
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / 3
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        evidence.add(loss)
    return evidence.of(model)


def several_models() -> dict:
    """Two models in turns, of which one is averaged by a group of its own."""
    first = wrapped(network(2))
    second = wrapped(network(3, 128), process_group=dist.new_group())
    optimizers = [torch.optim.AdamW(each.parameters(), 1e-3) for each in (first, second)]
    evidence = Evidence()
    for points in batches(6, seed=1):
        for model, optimizer in zip((first, second), optimizers):
            optimizer.zero_grad()
            loss = loss_of(model, points)
            loss.backward()
            optimizer.step()
            evidence.add(loss)
    return evidence.of(first, second)


def scaled_losses(is_wrapped_first: bool) -> dict:
    """A scaler whose scale rises and falls. The others in the program are off, and do not matter."""
    torch.amp.GradScaler("cpu", enabled=False).scale(torch.ones(()))
    scaler = None if is_wrapped_first and HOW != "explicit" else torch.amp.GradScaler("cpu", 256.0, growth_interval=2)
    model = wrapped(network(4), scaler)
    scaler = scaler or torch.amp.GradScaler("cpu", 256.0, growth_interval=2)
    off = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    evidence = Evidence()
    scales = []
    for step, points in enumerate(batches(9, seed=2)):
        if step == 5 and RANK == 1:
            points[0] = float("inf")
        optimizer.zero_grad()
        loss = loss_of(model, points)
        off.scale(scaler.scale(loss)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        evidence.add(loss)
    return {**evidence.of(model), "scales": scales}


def a_scaler_after_the_wrapper() -> dict:
    return scaled_losses(True)


def a_scaler_before_the_wrapper() -> dict:
    return scaled_losses(False)


def refused_hooks() -> dict:
    """What a second hook is told, be it the trainer's or onebit's. A copy of the model has none."""

    def own_hook(_state, bucket):
        return torch.futures.Future().set_result(bucket.buffer())

    model = DistributedDataParallel(network(5))
    found = {}
    try:
        model.register_comm_hook(None, own_hook)
    except Exception as error:  # pylint: disable=broad-exception-caught
        found["second"] = f"{type(error).__name__}: {error}"
    copied = copy.deepcopy(model)
    copied.register_comm_hook(None, own_hook)
    # DDP with mixed_precision, which takes a device, registers a hook before onebit does.
    import onebit.torch._ddp_variable as variable

    try:
        variable.register(copied, "fp4", {"codec": "fp4"})
    except Exception as error:  # pylint: disable=broad-exception-caught
        found["first"] = f"{type(error).__name__}: {error}"
    loss_of(model, batches(1)[0]).backward()  # the first hook is still there
    return found


def wrapper_of_half_the_ranks() -> dict:
    """Ranks find out that they differ, before they wait for each other."""
    import onebit.torch._ddp_variable as variable  # the wrapper has it, too

    variable._PATIENCE /= 20
    return refused_hooks()


TRAININGS = [plain_loop, micro_steps, several_models, a_scaler_after_the_wrapper, a_scaler_before_the_wrapper]


def main() -> None:
    cases = [*TRAININGS, refused_hooks, wrapper_of_half_the_ranks]
    names = sys.argv[3:] or [each.__name__ for each in TRAININGS]
    found = found_by(cases, sys.argv[1], *names)
    found["imported"] = "onebit" in sys.modules
    write(sys.argv[1], found)
    if HOW == "destroying":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
