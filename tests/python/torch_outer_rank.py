# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the jobs of torch_outer_job_test.py: torch_outer_rank.py FOLDER WHEN OPTIONS; writes FOLDER/RANK.json.

Rank 1 is killed before it makes its part of an average, or "after" that, before any rank applies it. The others
go on without it, and then with a process that takes its place: torch_outer_rank.py FOLDER new OPTIONS.
"""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings

import torch
import torch.distributed as dist

import onebit
from diloco_trainer import Trainer
from onebit.torch.outer import DiLoCo

VICTIM = 1
RANKS = 4
# Fragment 0 is submitted after steps 3, 9, 15, ... and applied two later.
OPTIONS = {"fragments": 2, "overlap": 2}
AT = 15
JOINED_AT = 31
LAST = 45


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def train_until(trainer, step):
    """Trains, and goes on without lost ranks; returns the errors that told of them."""
    errors = []
    while trainer.outer.steps < step:
        trainer.set_gradients()
        try:
            trainer.outer.step()
        except onebit.Error as error:
            errors.append(str(error))
            trainer.outer.shrink()
    return errors


def state_of(trainer):
    report = trainer.outer.report()
    return {"steps": report.steps, "rounds": report.rounds, "skipped": report.skipped_rounds,
            "values": digest(trainer.global_x)}  # fmt: skip


def meet(folder, rank):
    """A communicator of the survivors and a new process, whose place is the victim's."""
    place = pathlib.Path(folder, "id")
    if rank == 0:
        written = place.with_suffix(".part")
        written.write_bytes(onebit.unique_id())
        written.rename(place)
    while not place.exists():  # the job ends a rank whose others have failed
        time.sleep(0.05)
    return onebit.Communicator.from_unique_id(place.read_bytes(), RANKS, rank)


def train_together(trainer, folder, found):
    train_until(trainer, LAST)
    trainer.outer.flush()
    found["end"] = state_of(trainer)
    trainer.outer.close()
    return found


def refuse_replica():
    """A model whose gradients DDP averages over the same ranks."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    inner = torch.optim.SGD(model.parameters(), lr=1)
    try:
        DiLoCo(model, inner, every=3)
    except onebit.InvalidArgument as error:
        assert "over ranks [0, 1, 2, 3] in every step" in str(error), error
        return
    raise AssertionError("it is accepted")


def survive(folder, when, options):
    rank = int(os.environ["RANK"])
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    refuse_replica()
    trainer = Trainer(None, toy=rank, **OPTIONS, **options)
    train_until(trainer, AT - 1)
    if rank == VICTIM and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    errors = train_until(trainer, AT)
    if when == "after":
        trainer.outer.report()  # this rank has its average
        dist.barrier()
        if rank == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
    errors += train_until(trainer, AT + 5)
    found = {"errors": errors, "shrunk": state_of(trainer), "ranks": trainer.outer.communicator.size}
    train_until(trainer, JOINED_AT)
    trainer.outer.flush()
    number = rank if rank < VICTIM else rank - 1
    assert trainer.outer.communicator.rank == number
    started = None
    if rank == 0:
        command = [sys.executable, "-B", __file__, folder, "new", json.dumps(options)]
        started = subprocess.Popen(command)
    with meet(folder, rank) as comm:
        trainer.outer.join(comm)
        found["joined"] = state_of(trainer)
        train_together(trainer, folder, found)
    assert started is None or started.wait() == 0
    return rank, found


def replace(folder, options):
    with meet(folder, VICTIM) as comm:
        trainer = Trainer(comm, toy=VICTIM, **OPTIONS, **options)
        found = {"joined": state_of(trainer)}
        assert torch.equal(trainer.x, trainer.global_x)
        train_together(trainer, folder, found)
    return VICTIM, found


def main():
    folder, when, options = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options = json.loads(options)
    rank, found = replace(folder, options) if when == "new" else survive(folder, when, options)
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
