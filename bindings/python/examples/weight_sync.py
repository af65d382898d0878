# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a policy in one process, and passes its weights on to readers, which come and go.

    python weight_sync.py FOLDER &              the trainer, which waits for --readers of them
    python weight_sync.py FOLDER --read NAME &  a reader, any number of times with other names

Processes meet through files in FOLDER, which all of them see; messages go over the network. After every step the readers
have the trainer's weights bit for bit, and append what they have got to FOLDER/NAME.versions. Kill one and start it
again, or the trainer: the others go on. Readers run until they are stopped.
"""

import argparse
import hashlib
import json
import pathlib
import time

import torch
from torch import nn

import onebit.torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--read", metavar="NAME")
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    policy = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8))
    if options.read:
        read(options.folder, options.read, policy.bfloat16().state_dict())
    else:
        train(options, policy)


def train(options: argparse.Namespace, policy: nn.Module) -> None:
    folder = options.folder
    weights = {name: tensor.bfloat16() for name, tensor in policy.state_dict().items()}
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    sync = None
    for step in range(1, options.steps + 1):
        states = torch.randn(256, 64)
        (policy(states) - states[:, :8]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for name, tensor in policy.state_dict().items():
            weights[name].copy_(tensor)
        update = None
        while update is None:
            try:
                if sync is None or sync.communicator.failure or announced(folder):
                    sync = hold_meeting(folder, options.readers if sync is None else 1, weights, sync)
                update = sync.update()
            except onebit.Error as error:  # those who are left announce themselves again
                print(f"step {step}: {error}", flush=True)
        kind = "all weights" if update.is_full else "what has changed"
        print(f"step {step}: version {update.version} {mark(weights)}, {kind}: {update.sent_bytes} bytes", flush=True)
    sync.update()  # it begins when all readers have the last version


def hold_meeting(folder: pathlib.Path, readers: int, weights: dict, sync) -> onebit.torch.WeightSync:
    """The trainer's part: takes all readers to a new communicator that have announced themselves."""
    if sync:
        sync.communicator.abort()  # ends the updates of the others
    while len(announced(folder)) < readers:
        time.sleep(0.05)
    time.sleep(0.3)  # more may come; who comes later is taken in by another meeting
    names, unique_id = announced(folder), onebit.unique_id()
    for name in names:
        (folder / f"{name}.comes").unlink()
    (folder / "next").write_text(json.dumps([names, unique_id.hex()]))
    (folder / "next").rename(folder / f"{last_meeting(folder) + 1}.meeting")
    return joined(unique_id, len(names) + 1, 0, weights, sync)


def read(folder: pathlib.Path, name: str, weights: dict) -> None:
    sync = None
    while True:
        last = last_meeting(folder)
        (folder / f"{name}.comes").touch()
        while last_meeting(folder) == last:
            time.sleep(0.02)
        try:
            names, unique_id = json.loads((folder / f"{last_meeting(folder)}.meeting").read_text())
            if name not in names:
                continue
            sync = joined(bytes.fromhex(unique_id), len(names) + 1, names.index(name) + 1, weights, sync)
            while True:
                update = sync.update()
                with open(folder / f"{name}.versions", "a", encoding="utf-8") as log:
                    print(update.version, mark(weights), file=log)
        except onebit.Error:
            pass  # there will be another meeting


def joined(unique_id: bytes, size: int, rank: int, weights: dict, sync) -> onebit.torch.WeightSync:
    patience = onebit.Config(connect_timeout_ms=5000)
    communicator = onebit.Communicator.from_unique_id(unique_id, size, rank, patience)
    if sync is None:
        return onebit.torch.WeightSync(communicator, weights)
    sync.move(communicator)
    return sync


def announced(folder: pathlib.Path) -> list:
    return sorted(file.stem for file in folder.glob("*.comes"))


def last_meeting(folder: pathlib.Path) -> int:
    return max((int(file.stem) for file in folder.glob("*.meeting")), default=0)


def mark(weights) -> str:
    """A digest of all weights, to compare what the trainer sent with what a reader has."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(weights[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()
