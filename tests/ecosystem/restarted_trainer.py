# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A trainer that torchrun starts again: restarted_trainer.py FOLDER WAY STEPS DIES_AT WHO

WAY is `hook` or `adam`. Every few steps it saves all of its state under FOLDER, and begins with the last
that is complete: with that of each rank if there are as many ranks, otherwise with the global one. Before
step DIES_AT of the first attempt WHO is killed: `rank` 1, or the `host` that has $DIES, torchrun and all.
Each rank writes what it found to FOLDER, and the error that ended it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys

import torch
import torch.distributed as dist

import ddp_rank
import onebit.torch

FOLDER, WAY, STEPS, DIES_AT, WHO = (
    pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
)
SAVES_EVERY = 4
TORCHRUN = os.getppid()
RANK, RANKS = ddp_rank.RANK, ddp_rank.RANKS
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


class AdamTrainer(ddp_rank.Trainer):
    """1-bit Adam, which freezes before the loss."""

    def __init__(self):
        super().__init__(codec=None)
        self.ddp = self.model
        self.optimizer = onebit.torch.optim.OnebitAdam(self.model.parameters(), 2e-3, freeze_step=5)


def states_of(trainer: ddp_rank.Trainer, kind: str) -> dict:
    if trainer.state is None:
        return {"optimizer": trainer.optimizer.state_dict(kind)}
    return {"optimizer": trainer.optimizer.state_dict(), "hook": trainer.state.state_dict(kind)}


def save(trainer: ddp_rank.Trainer) -> None:
    unfinished = FOLDER / "unfinished"
    unfinished.mkdir(exist_ok=True)
    everything = {"model": trainer.model.state_dict(), "ranks": RANKS}
    everything.update({kind: states_of(trainer, kind) for kind in ("global", "rank")})
    torch.save(everything, unfinished / f"{RANK}.pt")
    dist.barrier()
    if RANK == 0:
        unfinished.rename(FOLDER / f"step-{trainer.step_number}")
    dist.barrier()


def load(trainer: ddp_rank.Trainer) -> dict:
    """Continues from the last checkpoint, which it returns."""
    if RANK == 0:
        shutil.rmtree(FOLDER / "unfinished", ignore_errors=True)
    dist.barrier()
    step = max((int(path.name[5:]) for path in FOLDER.glob("step-*")), default=0)
    if step == 0:
        return {}
    # PyTorch 2 loads with weights_only by default, because states have tensors and plain values only.
    common = torch.load(FOLDER / f"step-{step}" / "0.pt")
    is_same_size = common["ranks"] == RANKS
    mine = torch.load(FOLDER / f"step-{step}" / f"{RANK}.pt") if is_same_size else common
    states = mine["rank" if is_same_size else "global"]
    trainer.model.load_state_dict(mine["model"])
    trainer.optimizer.load_state_dict(states["optimizer"])
    if trainer.state is not None:
        trainer.state.load_state_dict(states["hook"])
    trainer.step_number = step
    return common


def error_of_owed(trainer: ddp_rank.Trainer, saved: dict) -> float:
    """The greatest difference of what ranks owe altogether, once that of `saved` is loaded into compressors of
    as many ranks as there are now, relative to it."""
    trainer.state.load_state_dict(saved["global"]["hook"])
    now = trainer.state.state_dict()["residuals"]
    errors = []
    for name, blob in saved["global"]["hook"]["residuals"].items():
        before, after = (sum(ddp_rank.residuals(each)) for each in (blob, now[name]))
        errors.append(float((after - before).norm() / before.norm()))
    return max(errors)


def die_if_it_is_time(step: int) -> None:
    if ATTEMPT > 0 or step != DIES_AT:
        return
    is_on_lost_host = WHO == "host" and "DIES" in os.environ
    if is_on_lost_host:
        with contextlib.suppress(ProcessLookupError):  # another rank of the host may have been faster
            os.kill(TORCHRUN, signal.SIGKILL)
    if is_on_lost_host or (WHO == "rank" and RANK == 1):
        os.kill(os.getpid(), signal.SIGKILL)


def write(name: str, found: dict) -> None:
    (FOLDER / f"{name}-{RANK}.json").write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    trainer = AdamTrainer() if WAY == "adam" else ddp_rank.Trainer()
    saved = load(trainer)
    found = {"attempt": ATTEMPT, "ranks": RANKS, "from": trainer.step_number}
    try:
        while trainer.step_number < STEPS:
            die_if_it_is_time(trainer.step_number)
            trainer.step()
            if trainer.step_number % SAVES_EVERY == 0:
                save(trainer)
    except (RuntimeError, onebit.Error) as error:
        failure = trainer.state.failure if trainer.state is not None else error
        write("failure", {"type": type(failure).__name__, "text": str(failure)})
        raise
    ddp_rank.assert_equal_on_all_ranks(trainer.digest())
    found["digest"] = trainer.digest()
    if saved and trainer.state is not None:
        found["error of what is owed"] = error_of_owed(trainer, saved)
    write("result", found)


if __name__ == "__main__":
    main()
