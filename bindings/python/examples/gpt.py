# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the bytes of a text, by as many processes as there are.

    torchrun --nproc-per-node 4 gpt.py TEXT                  DistributedDataParallel; 4 bits per element
    torchrun --nproc-per-node 4 gpt.py TEXT --average dense  the same in full precision
    torchrun --nproc-per-node 4 gpt.py TEXT --average adam   1-bit Adam, which averages by itself

With --checkpoint FILE it continues from that file, also with another number of processes.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import onebit.torch


class GPT(nn.Module):
    def __init__(self, width: int, layers: int, context: int):
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, max(1, width // 64), 4 * width, dropout=0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.token(tokens) + self.position[:length]
        for block in self.blocks:
            x = block(x, src_mask=future)
        return self.head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--average", choices=["hook", "dense", "adam"], default="hook")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--freeze-step", type=int, help="of 1-bit Adam; default: automatic")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16, help="sequences per process and step")
    parser.add_argument("--checkpoint", type=pathlib.Path)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)  # every process begins with the same parameters
    model = GPT(options.width, options.layers, options.context)
    rate = {"lr": options.lr, "weight_decay": 0.01, "betas": (0.9, 0.95)}
    hook = None
    if options.average == "adam":
        replica = model
        optimizer = onebit.torch.optim.OnebitAdam(
            model.parameters(), freeze_step=options.freeze_step or "automatic", max_grad_norm=1.0, **rate
        )
    else:
        replica = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), **rate)
        if options.average == "hook":
            hook = onebit.torch.State(replica)
            replica.register_comm_hook(hook, onebit.torch.ddp_hook)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20))

    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    if hook is not None:
        parts["hook"] = hook
    first_step = 0
    if options.checkpoint and options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        first_step = saved["step"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    text = torch.frombuffer(bytearray(options.text.read_bytes()), dtype=torch.uint8).long()
    for step in range(first_step, options.steps):
        batch = torch.Generator().manual_seed(step * ranks + rank)
        starts = torch.randint(len(text) - options.context - 1, (options.batch,), generator=batch)
        sequences = torch.stack([text[start : start + options.context + 1] for start in starts])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            replica(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten()
        )
        loss.backward()
        if options.average != "adam":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if rank == 0 and (step % 20 == 0 or step == options.steps - 1):
            print(f"step {step}: {loss.item():.3f} nats per byte", flush=True)

    if options.checkpoint:
        saved = {name: part.state_dict() for name, part in parts.items()}  # by all processes
        if rank == 0:
            torch.save({"step": options.steps, **saved}, f"{options.checkpoint}.new")
            os.replace(f"{options.checkpoint}.new", options.checkpoint)
    if rank == 0 and options.average != "dense":
        print(hook.report() if hook is not None else optimizer.stats())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
