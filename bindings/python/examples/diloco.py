# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a language model on the bytes of a text by DiLoCo: processes train by themselves, and average in 4 bits
what they have done every 20 steps. They go on if one of them is lost.

    torchrun --nproc-per-node 4 diloco.py TEXT
    onebit_run -n 4 python diloco.py TEXT --steps 400 --checkpoint FOLDER

With --checkpoint each rank saves its state to a file in FOLDER, and a job of as many ranks goes on from there.
"""

import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn

import onebit.torch

CONTEXT = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 256), nn.BatchNorm1d(256),
        nn.ReLU(), nn.Linear(256, 256),
    )  # fmt: skip
    inner = torch.optim.AdamW(model.parameters(), lr=2e-3)  # halves are averaged 10 steps apart:
    outer = onebit.torch.outer.DiLoCo(model, inner, every=20, fragments=2, overlap=2)

    file = options.checkpoint and options.checkpoint / f"rank{rank}of{ranks}"
    if file and file.exists():
        saved = torch.load(file)
        for name, part in {"model": model, "inner": inner, "outer": outer}.items():
            part.load_state_dict(saved[name])

    data = torch.frombuffer(bytearray(options.text.read_bytes()), dtype=torch.uint8).long()
    text, heldout = data.split([len(data) * 9 // 10, len(data) - len(data) * 9 // 10])

    def loss_on(part: torch.Tensor, size: int, seed: int) -> torch.Tensor:
        chosen = torch.randint(len(part) - CONTEXT, (size,), generator=torch.Generator().manual_seed(seed))
        windows = torch.stack([part[k : k + CONTEXT + 1] for k in chosen.tolist()])
        return nn.functional.cross_entropy(model(windows[:, :-1]), windows[:, -1])

    while outer.steps < options.steps:  # a rank that was behind when one was lost skips steps
        inner.zero_grad()
        loss_on(text, 64, ranks * outer.steps + rank).backward()  # this rank's batch
        try:
            outer.step()
        except onebit.Error as error:
            print(f"rank {rank} goes on without a rank: {error}", flush=True)
            outer.shrink()
        if outer.steps % 50 == 0 or outer.steps == options.steps:
            model.eval()
            with outer.global_parameters(), torch.no_grad():
                print(f"step {outer.steps}: held-out loss {loss_on(heldout, 1000, 0):.4f}", flush=True)
            model.train()

    if file:
        file.parent.mkdir(exist_ok=True)
        states = {"model": model.state_dict(), "inner": inner.state_dict(), "outer": outer.state_dict("rank")}
        torch.save(states, file)
    outer.flush()
    outer.adopt_global_parameters()  # the model is the same on all ranks now
    print(outer.report(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
