# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks whose training loops have forked workers, as PyTorch's DataLoader starts them: what a worker does
with its parent's objects is refused, its end disturbs nobody, and a killed rank is known at once while its
workers live."""

import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import numpy

import onebit

WORKERS = 4
PATIENCE_SECONDS = 60
# A loss time-out that no test waits for.
NO_SILENCE_MS = 1000 * 10 * PATIENCE_SECONDS


def work(comm, compressor, reports, batches, has_end):
    """A worker, which has copies of everything. Like those of a DataLoader it ends with its interpreter's
    handlers, or lives as long as somebody may want batches."""
    said = []
    for call in (
        lambda: comm.all_reduce(numpy.ones(8, numpy.float32)),
        lambda: comm.all_reduce(numpy.ones(8, numpy.float32), compressor=compressor),
        comm.barrier,
        comm.abort,
        comm.stats,
        compressor.reset,
    ):
        try:
            call()
            said.append("no error")
        except onebit.InvalidUsage as error:
            said.append("refused" if "parent of this forked process" in str(error) else str(error))
    reports.put((os.getpid(), comm.rank, said))
    if has_end:
        compressor.close()
        return  # the communicator is destroyed with the interpreter
    batches.get()


def train(rank: int, meet: str, has_end: bool, results):
    """A rank, in an interpreter of its own."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE="2",
        ONEBIT_RENDEZVOUS=meet,
        ONEBIT_LOSS_TIMEOUT_MS=str(NO_SILENCE_MS),
    )
    comm = onebit.Communicator.from_environment()
    compressor = onebit.Compressor(comm, 8)
    workers = multiprocessing.get_context("fork")
    reports, batches = workers.Queue(), workers.Queue()
    children = [
        workers.Process(target=work, args=(comm, compressor, reports, batches, has_end))
        for _ in range(WORKERS)
    ]
    for child in children:
        child.start()
    said = [reports.get(timeout=PATIENCE_SECONDS) for _ in children]
    if has_end:
        for child in children:
            child.join(PATIENCE_SECONDS)
        said += [child.exitcode for child in children]
    results.put((os.getpid(), said))
    value = numpy.full(8, 1.0 + rank, numpy.float32)
    total = numpy.zeros_like(value)
    try:
        while True:
            comm.all_reduce(value, out=total)
            assert (total == 3).all(), total
            if has_end:
                break
        results.put(("sum", float(total[0])))
        comm.finalize()
    except onebit.Error as error:
        results.put((type(error).__name__, str(error)))
    results.close()
    results.join_thread()
    os._exit(0)  # multiprocessing would wait for workers that still live


class DataWorkersTest(unittest.TestCase):
    def start(self, has_end: bool):
        """Two ranks; returns what each has said first, and the queues of what they say next."""
        folder = tempfile.TemporaryDirectory(prefix="onebit-test-")
        self.addCleanup(folder.cleanup)
        spawn = multiprocessing.get_context("spawn")
        # One for each, because a killed rank may leave its queue locked.
        results = [spawn.Queue() for _ in range(2)]
        meet = str(pathlib.Path(folder.name) / "meet")
        for rank in range(2):
            process = spawn.Process(target=train, args=(rank, meet, has_end, results[rank]))
            process.start()
            self.addCleanup(process.kill)
        first = [each.get(timeout=PATIENCE_SECONDS) for each in results]
        for rank, (_, said) in enumerate(first):
            for report in said[:WORKERS]:
                self.assertEqual(report[1:], (rank, ["refused"] * 6))
        return first, results

    def test_workers_end_and_the_job_goes_on(self):
        first, results = self.start(has_end=True)
        for (_, said), each in zip(first, results):
            self.assertEqual(said[WORKERS:], [0] * WORKERS)
            self.assertEqual(each.get(timeout=PATIENCE_SECONDS), ("sum", 3.0))

    def test_killed_rank_is_known_while_its_workers_live(self):
        for victim in range(2):
            first, results = self.start(has_end=False)
            workers = [report[0] for _, said in first for report in said]
            try:
                begin = time.monotonic()
                os.kill(first[victim][0], signal.SIGKILL)
                error, text = results[1 - victim].get(timeout=PATIENCE_SECONDS)
                seconds = time.monotonic() - begin
                self.assertEqual(error, "PeerLost", text)
                self.assertIn(f"rank {victim} is gone", text)
                for worker in workers:
                    os.kill(worker, 0)  # it lives
                print(f"rank {victim} was killed: known after {seconds:.3f} s", file=sys.stderr)
            finally:
                for worker in workers:
                    os.kill(worker, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
