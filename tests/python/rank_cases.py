# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Cases that all ranks of a job of PyTorch run, one after the other."""

import json
import os
import pathlib
import traceback
from typing import Any, Callable, Dict, Sequence

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])


def found_by(cases: Sequence[Callable[[], Any]], folder: str, *names: str) -> Dict[str, Any]:
    """What each case returns, or {"failed": its traceback}; `names` selects some. Initializes the default
    group."""
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=int(os.environ["WORLD_SIZE"]))
    torch.set_num_threads(1)
    return found_of(cases, *names)


def found_of(cases: Sequence[Callable[[], Any]], *names: str) -> Dict[str, Any]:
    """The same in a group that is there already."""
    found: Dict[str, Any] = {}
    for case in cases:
        if not names or case.__name__ in names:
            try:
                found[case.__name__] = case()
            except Exception:  # the others still tell something
                found[case.__name__] = {"failed": traceback.format_exc()}
    return found


def write(folder: str, found: Dict[str, Any]) -> None:
    pathlib.Path(folder, f"{RANK}.json").write_text(json.dumps(found), encoding="utf-8")


def run_cases(cases: Sequence[Callable[[], Any]], folder: str, *names: str) -> None:
    write(folder, found_by(cases, folder, *names))
    dist.barrier()
