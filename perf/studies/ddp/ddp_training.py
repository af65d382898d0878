# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A run of perf/studies/ddp/study, started by torchrun: trains the GPT of the examples and writes what it learned,
sent and took. Several ways to average train a model each, and take turns step by step, so that whatever else the
machine does falls on all of them. Where they shard it (HSDP), the ranks of a host hold a replica together.

The learning rate rises for --warmup steps, and falls to a tenth along half a cosine. Before each step ranks
wait for each other; the step then takes as long as on the slowest of them. The time of the comparison of
parameters after a step does not count.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

import onebit.torch

sys.dont_write_bytecode = True
STUDIES = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(STUDIES), str(STUDIES.parents[1] / "bindings" / "python" / "examples")]

# pylint: disable=wrong-import-position
from ddp.ddp_results import DENSE, HSDP_BACKEND, HSDP_FP4, NOTHING, ONEBIT_ADAM, SHARDED
from gpt import GPT

HELD_OUT_SHARE = 0.05
HELD_OUT_SEQUENCES = 512


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True, help="written by rank 0")
    parser.add_argument("--averages", required=True, metavar="NAME,...",
                        help=f"dense, nothing, onebit-adam, a codec, {', '.join(SHARDED)}")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--freeze-step", type=int, required=True, help="freeze step of 1-bit Adam")
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences per rank and step")
    return parser.parse_args()


class Training:
    def __init__(self, options: argparse.Namespace, average: str):
        self.options = options
        self.average = average
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(options.seed)
        self.model = GPT(options.width, options.layers, options.context)
        self.hook = None
        self.is_onebit_adam = average == ONEBIT_ADAM
        self.seconds, self.update_seconds, self.steps_alike, self.bytes_of_last_step = [], [], 0, 0
        rates = {"lr": options.lr, "weight_decay": 0.01, "betas": (0.9, 0.95)}
        if self.is_onebit_adam:
            self.replica = self.model
            self.optimizer = onebit.torch.optim.OnebitAdam(
                self.model.parameters(),
                freeze_step=options.freeze_step,
                max_grad_norm=1.0,
                **rates,
            )
        else:
            self.replica = self._sharded() if average in SHARDED else self._replicated()
            self.optimizer = torch.optim.AdamW(self.model.parameters(), **rates)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._share_of_rate)
        text = torch.frombuffer(bytearray(options.text.read_bytes()), dtype=torch.uint8).long()
        held_out = int(HELD_OUT_SHARE * len(text))
        self.text, self.held_out = text[:-held_out], text[-held_out:]

    def _replicated(self) -> nn.Module:
        replica = DistributedDataParallel(self.model)
        if self.average == NOTHING:
            replica.register_comm_hook(None, noop_hook)
        elif self.average != DENSE:
            self.hook = onebit.torch.State(replica, codec=self.average)
            replica.register_comm_hook(self.hook, onebit.torch.ddp_hook)
        return replica

    def _sharded(self) -> nn.Module:
        """Shards the model over the ranks of a host."""
        # Older versions of PyTorch, which have the other ways to average, do not have these.
        # pylint: disable=import-outside-toplevel
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        backends = {}
        if self.average == HSDP_BACKEND:
            onebit.torch.backend.register()
            backends["backend_override"] = {"replicate": "onebit"}
        host_ranks = int(os.environ["LOCAL_WORLD_SIZE"])
        shape = (self.ranks // host_ranks, host_ranks)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"), **backends)
        for module in (*self.model.blocks, self.model):
            fully_shard(module, mesh=mesh["shard"] if self.average == HSDP_FP4 else mesh)
        if self.average == HSDP_FP4:
            self.hook = onebit.torch.fsdp.compress_replicas(self.model, mesh["replicate"], "fp4")
        return self.model

    def _share_of_rate(self, step: int) -> float:
        warmup, steps = self.options.warmup, self.options.steps
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))

    def _sequences(self, text: torch.Tensor, count: int, seed: int) -> torch.Tensor:
        length = self.options.context + 1
        starts = torch.randint(len(text) - length, (count,), generator=torch.Generator().manual_seed(seed))
        return torch.stack([text[start : start + length] for start in starts])

    def _loss(self, module: nn.Module, sequences: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(
            module(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten()
        )

    def step(self, number: int) -> None:
        """Makes a step, and records what all ranks know of it."""
        is_last = number == self.options.steps - 1
        # A report of the hook takes long, and would disturb the steps that are timed.
        sent_before = self.bytes_sent() if is_last else 0
        mine = (*self._timed_step(number), self.digest())
        found = [None] * self.ranks
        dist.all_gather_object(found, mine)
        if is_last:
            self.bytes_of_last_step = self.bytes_sent() - sent_before
        whole, update, digests = zip(*found)
        self.seconds.append(round(max(whole), 5))
        self.update_seconds.append(round(max(update), 5))
        self.steps_alike += len(set(digests)) == 1

    def _timed_step(self, number: int) -> list:
        """Makes a step and returns its seconds on this rank, and those of them after the backward pass."""
        seed = (self.options.seed * self.options.steps + number) * self.ranks + self.rank
        sequences = self._sequences(self.text, self.options.batch, seed)
        dist.barrier()
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        self._loss(self.replica, sequences).backward()
        middle = time.perf_counter()
        if not self.is_onebit_adam:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        end = time.perf_counter()
        return [end - begin, end - middle]

    @torch.no_grad()
    def held_out_loss(self) -> float:
        self.model.eval()
        # All runs evaluate the same sequences.
        batches = self._sequences(self.held_out, HELD_OUT_SEQUENCES, 0).split(32)
        mine = batches[self.rank :: self.ranks]
        found = torch.tensor(
            [sum(self._loss(self.model, batch).item() for batch in mine), len(mine)], dtype=torch.float64
        )
        dist.all_reduce(found)
        return (found[0] / found[1]).item()

    def digest(self) -> str:
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            whole = parameter.full_tensor() if self.average in SHARDED else parameter
            found.update(whole.detach().numpy())
        return found.hexdigest()

    def bytes_sent(self) -> int:
        """By this rank in all steps so far; 0 where Gloo sends. By the link of its host for sharded models."""
        if self.average in SHARDED:
            return link_bytes_sent()
        if self.is_onebit_adam:
            return self.optimizer.stats().bytes_sent if self.optimizer.last_step else 0
        return self.hook.report().bytes_sent if self.hook is not None else 0

    def result(self) -> dict:
        return {
            "average": self.average,
            "seed": self.options.seed,
            "steps": self.options.steps,
            "held_out_loss": self.held_out_loss(),
            "steps_alike": self.steps_alike,
            "seconds": self.seconds,
            "update_seconds": self.update_seconds,
            "bytes_of_last_step": self.bytes_of_last_step,
            "matrices": [p.numel() for p in self.model.parameters() if p.dim() > 1],
            "vectors": [p.numel() for p in self.model.parameters() if p.dim() < 2],
            "torch": torch.__version__,
        }

    def close(self) -> None:
        if self.hook is not None:
            self.hook.close()
        if self.is_onebit_adam:
            self.optimizer.close()


def link_bytes_sent() -> int:
    """By this host in the lab so far, whoever sent them, with headers down to those of Ethernet."""
    lines = pathlib.Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()
    counters = dict(line.split(":") for line in lines if ":" in line)
    return int({name.strip(): numbers.split() for name, numbers in counters.items()}["eth0"][8])


def main() -> None:
    options = parse()
    torch.set_num_threads(1)  # a rank has a core, at most
    dist.init_process_group("gloo")
    trainings = [Training(options, average) for average in options.averages.split(",")]
    for number in range(options.steps):
        for training in trainings:
            training.step(number)
    results = [training.result() for training in trainings]
    if dist.get_rank() == 0:
        options.json.write_text(json.dumps(results) + "\n", encoding="utf-8")
    for training in trainings:
        training.close()
    dist.barrier()
    dist.destroy_process_group()
    # Gloo of PyTorch 2.15 now and then aborts a process whose interpreter winds down. This leaves out what is
    # registered to run at exit, so onebit's communicators have been left above.
    os._exit(0)


if __name__ == "__main__":
    main()
