# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of exits_test.py and reported_ranks_test.py.

    exits_rank.py FOLDER RANK RANKS     writes FOLDER/RANK.json
    exits_rank.py fail HOW FOLDER       of a launcher: rank 1 fails
"""

import fcntl
import json
import os
import pathlib
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit.torch

_kept = []  # until the process ends


class Rank:
    """A rank of a job. Its process holds a lock for as long as it lives."""

    def __init__(self, folder: str, number: int, ranks: int):
        self.number = number
        self.folder = pathlib.Path(folder)
        alive = (self.folder / f"{number}.alive").open("w", encoding="utf-8")
        fcntl.flock(alive, fcntl.LOCK_EX)
        _kept.append(alive)
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=ranks
        )
        torch.set_num_threads(1)
        self.train()

    def train(self) -> None:
        """Begins with a model whose averages are in order."""
        torch.manual_seed(0)
        self.model = DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)), bucket_cap_mb=0.001
        )
        self.state = onebit.torch.State(self.model, dense_iterations=1)
        self.model.register_comm_hook(self.state, onebit.torch.ddp_hook)
        self.communicator = self.state._membership.communicator
        _kept.append(self.state)
        self.step()
        self.step()

    def step(self) -> None:
        self.model(torch.ones(2, 64)).sum().backward()

    def write(self, found: dict) -> None:
        (self.folder / f"{self.number}.json").write_text(json.dumps(found), encoding="utf-8")

    def await_end(self, of: int) -> bool:
        """Waits until the process of another rank is gone. False if it stays for a minute."""
        with (self.folder / f"{of}.alive").open(encoding="utf-8") as alive:
            for _ in range(600):
                try:
                    fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    time.sleep(0.1)
        return False


def await_file(path: pathlib.Path) -> None:
    while not path.exists():
        time.sleep(0.05)


def text_of(call) -> str:
    try:
        call()
    except (onebit.Error, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def different_calls(rank: Rank) -> dict:
    """One rank saves, or shrinks, while the others go on."""
    found = {}
    for alone in (0, 1):
        call = rank.state.state_dict if rank.number == alone else rank.step
        found[f"state_dict on {alone}"] = text_of(call)
        rank.train()
    optimizer = onebit.torch.optim.OnebitAdam(torch.nn.Linear(64, 8).parameters())
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    found["optimizer"] = text_of(optimizer.state_dict if rank.number == 1 else optimizer.step)
    values = torch.ones(4)
    if rank.number != 0:
        found["shrink"] = text_of(lambda: rank.communicator.all_reduce(values))
    smaller = rank.communicator.shrink()  # the others come once they know
    found["shrunk"] = smaller.size
    smaller.finalize()
    rank.train()
    return found


def interrupted(rank: Rank, where: str, call) -> str:
    """What a call raises in which rank 1 waits for the others, who come once it is out of it."""
    out = rank.folder / where
    if rank.number != 1:
        await_file(out)
        return text_of(call)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    found = ""
    try:
        try:
            call()
        except RuntimeError:  # of the backward pass; the next instruction raises KeyboardInterrupt
            time.sleep(0)
    except KeyboardInterrupt:
        found = "KeyboardInterrupt"
    out.touch()
    return found


def interrupted_alone(call) -> str:
    """What a call raises in which this rank waits for others that do not come."""
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        call()
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    return ""


def interrupts(rank: Rank) -> dict:
    found = {"in the hook": interrupted(rank, "hook", rank.step)}
    rank.train()
    values = torch.ones(4)
    found["in a call"] = interrupted(
        rank, "call", lambda: rank.communicator.all_reduce(values)
    )
    rank.train()
    if rank.number == 1:
        other = onebit.Communicator.init_all(1)[0]
        found["while joining"] = interrupted_alone(
            lambda: onebit.Communicator.from_unique_id(
                onebit.unique_id(), 2, 0, onebit.Config(connect_timeout_ms=600_000)
            )
        )
        time.sleep(1)  # as a notebook does; the thread that joins is still in its call
        found["whole"] = other.failure is None
        # The program handles the signal itself, so nothing is aborted.
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        time.sleep(2)  # the other rank waits meanwhile
    found["handled"] = text_of(lambda: rank.communicator.all_reduce(values))
    return found


def leave_early(rank: Rank) -> dict:
    """Rank 0 ends while the others compute; what it had sent arrives, and only then is it missed."""
    values = torch.full((4,), 7.0)
    if rank.number == 0:
        for other in (1, 2):
            rank.communicator.send(values, other)
        sys.exit(0)
    found = {"has rank 0 ended": rank.await_end(0)}
    values.zero_()
    rank.communicator.recv(values, 0)
    found["values"] = values.tolist()
    (rank.folder / f"{rank.number}.received").touch()
    await_file(rank.folder / f"{3 - rank.number}.received")
    found["text"] = text_of(lambda: rank.communicator.all_reduce(values))
    return found


def fail_in_a_step(number: int, folder: str, ranks: int, how: str) -> None:
    """Rank 1 fails while the others average: before its own averages, or in the middle of them."""
    rank = Rank(folder, number, ranks)
    if number == 1:

        def fail(*_):
            if how == "exit":
                sys.exit(1)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the batch is empty")

        if how != "inside":
            fail()
        # The average of the last layer waits for the others meanwhile.
        rank.model.module[0].weight.register_hook(fail)
    rank.step()


if __name__ == "__main__":
    if sys.argv[1] == "fail":
        fail_in_a_step(
            int(os.environ["RANK"]), sys.argv[3], int(os.environ["WORLD_SIZE"]), sys.argv[2]
        )
        sys.exit()
    this = Rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    this.write(
        {"different": different_calls(this), "interrupts": interrupts(this), "left": leave_early(this)}
    )
