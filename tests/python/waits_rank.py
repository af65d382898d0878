# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of waits_test.py: waits_rank.py FOLDER RANK RANKS; writes FOLDER/RANK.json."""

import json
import pathlib
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit.torch
from onebit import _waits

_waits._WARN_AFTER_SECONDS = 0.3


class Rank:
    def __init__(self, folder: str, number: int, ranks: int):
        self.number = number
        self.folder = pathlib.Path(folder)
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=ranks
        )
        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8)
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.state = onebit.torch.State(self.model, dense_iterations=1)
        self.model.register_comm_hook(self.state, onebit.torch.ddp_hook)
        named = torch.nn.Linear(64, 8).named_parameters()
        self.optimizer = onebit.torch.optim.ZeroOneAdam(named, var_freeze_step=1, local_step_scaler=2)
        self.empty = onebit.torch.optim.OnebitAdam([torch.zeros(4)])
        self.compressor = onebit.Compressor(self.state._membership.communicator, 8, tensor_id=100)
        self.warned, self.waits = [], 0
        warnings.showwarning = self.note
        for _ in range(2):
            self.forward().sum().backward()
        for _ in range(9):  # with a local one at the end
            for parameter in self.optimizer.param_groups[0]["params"]:
                parameter.grad = torch.full_like(parameter, 1.0 + number)
            self.optimizer.step()

    def forward(self) -> torch.Tensor:
        return self.model(torch.rand(4, 64))

    def note(self, message, category, filename, lineno, file=None, line=None) -> None:
        self.warned.append([str(message), pathlib.Path(filename).name])
        if self.number == 0:
            (self.folder / f"warned-{len(self.warned)}").touch()

    def warned_in(self, call) -> list:
        """What rank 0 is warned of in a call to which the others come after the warning."""
        before = len(self.warned)
        self.waits += 1
        if self.number != 0:
            end = time.monotonic() + 60
            while not (self.folder / f"warned-{self.waits}").exists() and time.monotonic() < end:
                time.sleep(0.05)
        call()
        dist.barrier()
        return self.warned[before:]

    def late(self) -> dict:
        return {
            "synchronize": self.warned_in(self.optimizer.synchronize),
            "state": self.warned_in(self.state.state_dict),
            "again": self.warned_in(self.state.state_dict),
            "optimizer": self.warned_in(self.optimizer.state_dict),
            "global": self.warned_in(lambda: self.optimizer.state_dict("global")),
            "compressor": self.warned_in(lambda: self.compressor.export_state("global")),
            "group": self.warned_in(
                lambda: self.empty.add_param_group({"params": [torch.zeros(4)]})
            ),
        }

    def quiet(self) -> list:
        """Calls that wait for nobody, or in which a wait is nothing unusual."""
        before = len(self.warned)
        self.state.state_dict("rank")
        self.optimizer.state_dict("rank")
        if self.number != 0:
            time.sleep(1)  # rank 0 waits meanwhile
        self.state._membership.communicator.all_reduce(torch.ones(4))
        onebit.torch.State(self.model.module).close()
        return self.warned[before:]

    def alone(self) -> dict:
        """Rank 0 saves while the others wait in a broadcast of PyTorch's."""
        before = len(self.warned)
        text = ""
        try:
            if self.number == 0:
                self.state.state_dict()
            else:
                self.forward()
        except (onebit.Error, RuntimeError) as error:
            text = f"{type(error).__name__}: {error}"
        return {"text": text, "warned": self.warned[before:]}


if __name__ == "__main__":
    this = Rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    found = {"late": this.late(), "quiet": this.quiet(), "alone": this.alone()}
    (this.folder / f"{this.number}.json").write_text(json.dumps(found), encoding="utf-8")
