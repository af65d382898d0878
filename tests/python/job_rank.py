# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of jobs_test.py: job_rank.py FOLDER CASE [ARGUMENT]; writes FOLDER/RANK.json."""

import hashlib
import json
import os
import pathlib
import signal
import sys

import numpy

import onebit

COUNT = 12 * 64 * 16  # in equal chunks for 2, 3 and 4 ranks, and too many for one exchange
CALLS = 3
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def gradient(rank: int, call: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng([rank, call]).standard_normal(COUNT).astype("f4")


def digest(memory: numpy.ndarray) -> str:
    return hashlib.sha256(memory.tobytes()).hexdigest()


def calls(comm: onebit.Communicator) -> dict:
    """Bytes that each way of an all-reduce sends, what the compressor says, and results."""
    found = {}
    for name, options in (("dense", None), ("sign", {"codec": "sign"}), ("fp4", {"codec": "fp4"})):
        compressor = None if options is None else onebit.Compressor(comm, COUNT, **options)
        results, total, before = [], numpy.zeros(COUNT), comm.stats().bytes_sent
        for call in range(CALLS):
            ours = gradient(comm.rank, call)
            comm.all_reduce(ours, op="avg", compressor=compressor)
            results.append(digest(ours))
            total += ours
        found[name] = {
            "results": results,
            "bytes": (comm.stats().bytes_sent - before) / CALLS,
            "said": compressor.stats().wire_bytes if compressor else None,
        }
        exact = (
            sum(
                gradient(rank, call).astype("f8")
                for rank in range(comm.size)
                for call in range(CALLS)
            )
            / comm.size
        )
        found[name]["error"] = float(numpy.linalg.norm(total - exact) / numpy.linalg.norm(exact))
    return found


def groups(comm: onebit.Communicator) -> dict:
    """A group on a stream, with a state in the middle."""
    compressors = [onebit.Compressor(comm, COUNT, codec=codec) for codec in ("sign", "fp4")]
    with onebit.Stream() as stream:
        for call in range(CALLS):
            arrays = [gradient(comm.rank, call), gradient(comm.rank + 10, call)]
            with onebit.group():
                for ours, compressor in zip(arrays, compressors):
                    comm.all_reduce(ours, op="avg", compressor=compressor, stream=stream)
            stream.synchronize()
            if call == 1:
                states = [compressor.export_state() for compressor in compressors]
                common = [compressor.export_state("global") for compressor in compressors]
    again = [onebit.Compressor(comm, COUNT, codec=codec) for codec in ("sign", "fp4")]
    same = []
    for compressor, state, result, first in zip(again, states, arrays, (0, 10)):
        compressor.import_state(state)
        ours = gradient(comm.rank + first, CALLS - 1)
        comm.all_reduce(ours, op="avg", compressor=compressor)
        same.append(ours.tobytes() == result.tobytes())
    return {
        "results": [digest(ours) for ours in arrays],
        "continued": same,
        "global": [hashlib.sha256(state).hexdigest() for state in common],
    }


def golden(comm: onebit.Communicator, path: str) -> dict:
    """The results of the calls of a golden file."""
    given = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    compressor = onebit.Compressor(
        comm,
        given["d"],
        TYPES[given["kind"]],
        codec=given.get("codec", "sign"),
        mode=given["mode"],
        block=given["block"] or "tensor",
        scale_rule=given.get("rule"),
        residual_type=TYPES[given["residual"]],
        seed=given.get("seed"),
        tensor_id=7,
    )
    results = []
    for call in given["calls"]:
        ours = numpy.frombuffer(bytes.fromhex(call["x"][comm.rank]), "f4").copy()
        comm.all_reduce(ours, op=given["op"], compressor=compressor)
        results.append(ours.tobytes().hex())
    return {"results": results}


def loss(comm: onebit.Communicator) -> dict:
    """Rank 1 is killed in the middle; the others go on without it."""
    compressor = onebit.Compressor(comm, COUNT)
    for call in range(1000):
        if comm.rank == 1 and call == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.all_reduce(gradient(comm.rank, call), op="avg", compressor=compressor)
        except onebit.Error as error:
            found = {
                "error": type(error).__name__,
                "text": str(error),
                "failure": type(comm.failure).__name__,
            }
            break
    smaller = comm.shrink(abort=True)
    found["lost"] = comm.lost
    comm.close()
    found["source"] = compressor.rebind(smaller)
    ours = gradient(smaller.rank)
    smaller.all_reduce(ours, op="avg", compressor=compressor)
    smaller.finalize()
    return {**found, "ranks": smaller.size, "result": digest(ours)}


def main() -> None:
    folder, case, *arguments = sys.argv[1:]
    cases = {each.__name__: each for each in (calls, groups, golden, loss)}
    comm = onebit.init()
    rank = comm.rank
    found = cases[case](comm, *arguments)
    if not comm.is_closed:
        comm.finalize()
    (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
