# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that steps DeepSpeed's optimizer and ours side by side: deepspeed_rank.py FOLDER CASE

Writes FOLDER/RANK.json: for each step how far the parameters are from each other, relative to how far DeepSpeed's
have come from where they began.
"""

import json
import os
import pathlib
import sys

import deepspeed
import numpy
import torch
import torch.distributed as dist
from deepspeed.runtime.comm import compressed as compressed_backend
from deepspeed.runtime.fp16.onebit.adam import OnebitAdam
from deepspeed.runtime.fp16.onebit.lamb import OnebitLamb
from deepspeed.runtime.fp16.onebit.zoadam import ZeroOneAdam

import onebit.torch

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, FREEZE = 40, 15
CASES = {
    "adam": (OnebitAdam, onebit.torch.optim.OnebitAdam, {"freeze_step": FREEZE}),
    "lamb": (OnebitLamb, onebit.torch.optim.OnebitLamb, {"freeze_step": FREEZE}),
    "zero_one_adam": (
        ZeroOneAdam,
        onebit.torch.optim.ZeroOneAdam,
        {"var_freeze_step": FREEZE, "var_update_scaler": 2, "local_step_scaler": 8, "local_step_clipper": 4},
    ),
}


class Packbits:
    """Stands for the operator of DeepSpeed's compressed backend, which it builds for accelerators only."""

    def load(self):
        return self

    @staticmethod
    def packbits(values: torch.Tensor, _count: int, _rank: int) -> torch.Tensor:
        return torch.from_numpy(numpy.packbits(values.numpy() >= 0))

    @staticmethod
    def unpackbits(bits: torch.Tensor, _count: int, _rank: int) -> torch.Tensor:
        return torch.from_numpy(2.0 * numpy.unpackbits(bits.numpy()).astype(numpy.float32) - 1.0)


class Gloo:
    """deepspeed.comm for Gloo, which gathers a scalar into scalars only, where NCCL takes one element, too."""

    def __getattr__(self, name: str):
        return getattr(deepspeed.comm, name)

    @staticmethod
    def all_gather(tensors: list, tensor: torch.Tensor, group) -> None:
        deepspeed.comm.all_gather(tensors, tensor.reshape(tensors[0].shape), group=group)


class Engine:
    """What the classes ask of DeepSpeed's engine, and what they tell it."""

    mpu = None
    local_rank = 0
    enable_backward_allreduce = True


def gradient(step: int, parameter: torch.Tensor) -> torch.Tensor:
    """That of a quadratic function, with noise of this rank. No element is 0, which one bit cannot say."""
    generator = torch.Generator().manual_seed(1000 * step + RANK)
    return parameter.detach() + 0.5 * torch.randn(parameter.shape, generator=generator)


def main() -> None:
    folder, case = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    compressed_backend.PackbitsBuilder = Packbits
    compressed_backend.dist = Gloo()
    theirs_class, ours_class, options = CASES[case]

    # There is one parameter, whose parts of all servers are multiples of what both libraries round up to.
    start = torch.randn(512 * RANKS, generator=torch.Generator().manual_seed(1))
    theirs, ours = (torch.nn.Parameter(start.clone()) for _ in range(2))
    engine = Engine()
    rates = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.01}
    theirs_optimizer = theirs_class([theirs], deepspeed=engine, comm_backend_name="compressed", **rates, **options)
    if case != "lamb":
        options = {**options, "bias_correction": False}
    ours_optimizer = ours_class(
        [ours], variant="deepspeed", compressor={"block": "tensor"}, variance_floor=0.0, **rates, **options
    )

    distances, norms = [], []
    for step in range(STEPS):
        # Both get the gradient at DeepSpeed's parameters, so that what differs is the step.
        ours.grad = gradient(step, theirs)
        theirs.grad = ours.grad.clone()
        if engine.enable_backward_allreduce:
            dist.all_reduce(theirs.grad)
            theirs.grad /= RANKS
        theirs_optimizer.step()
        ours_optimizer.step()
        distances.append(float((theirs - ours).detach().norm()))
        norms.append(float((theirs.detach() - start).norm()))
    found = {"distances": distances, "norms": norms, "stats": str(ours_optimizer.stats())}
    (folder / f"{RANK}.json").write_text(json.dumps(found), encoding="utf-8")
    ours_optimizer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
