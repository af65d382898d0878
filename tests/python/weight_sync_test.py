# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""WeightSync: every version arrives bit for bit, whoever comes, leaves or is killed.

weight_sync_test.py EXAMPLE STEPS KILLS [TestCase.test]: with the example as users run it, a trainer of STEPS
steps, whose readers are killed KILLS times.
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import needs_torch  # pylint: disable=unused-import
import torch

import onebit
from onebit.torch import WeightSync
from rank_threads_case import errors_of_ranks, run_ranks

EXAMPLE, STEPS, KILLS = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
del sys.argv[1:4]


def tensors(seed: int = 0) -> dict:
    draw = torch.Generator().manual_seed(seed)  # ranks are threads

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=draw).to(dtype)

    return {
        "weight": normal(300, 70, dtype=torch.bfloat16),
        "half": normal(1001, dtype=torch.float16),
        "bias": normal(501),
        "scalar": normal(),
        "steps": torch.tensor(7),
        "mask": normal(33) < 0,
        "bytes": torch.randint(0, 256, (5, 3), dtype=torch.uint8, generator=draw),
        "wide": normal(9, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "turned": normal(20, 30, dtype=torch.bfloat16).t(),
    }


def change(values: dict, seed: int) -> None:
    """What a step of a small rate does: some elements go to a neighbour."""
    generator = torch.Generator().manual_seed(seed)
    for value in values.values():
        if value.is_floating_point() and value.numel() > 0:
            moved = torch.rand(value.shape, generator=generator) < 0.03
            value.copy_(torch.where(moved, value * 1.01, value))
    values["steps"] += 1


def same(first: dict, second: dict) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


class WeightSyncTest(unittest.TestCase):
    def test_every_version_of_all_types(self):
        def run(comm):
            mine, trainers = tensors(comm.rank), tensors(1)
            order = sorted(mine, reverse=comm.rank == 2)
            sync = WeightSync(comm, {name: mine[name] for name in order}, root=1)
            updates = []
            for step in range(12):
                if step:
                    change(trainers, step)
                if comm.rank == 1:
                    for name, value in mine.items():
                        value.copy_(trainers[name])
                updates.append(sync.update())
                self.assertTrue(same(mine, trainers), step)
                self.assertEqual(updates[-1].version, step + 1)
            self.assertEqual([update.is_full for update in updates], [True] + [False] * 11)
            return updates

        root = run_ranks(3, run)[1]
        whole = sum(value.numel() * value.element_size() for value in tensors().values())
        self.assertGreater(root[0].sent_bytes, whole)  # in two exchanges, so that it leaves the root once
        self.assertLess(root[-1].sent_bytes, root[0].sent_bytes / 5)

    def test_differences_are_named_on_all_ranks(self):
        for name, other, text in (
            ("bias", torch.zeros(502), r"tensor 'bias' is torch.float32 of shape \(501,\) on rank 0, but "
             r"torch.float32 of shape \(502,\) on rank 1"),
            ("half", torch.zeros(1001), "torch.float16 .* torch.float32"),
            ("more", torch.zeros(1), "rank 1 has a tensor 'more', which rank 0 does not have"),
            ("bias", torch.zeros(1).expand(501), "not a tensor with memory for each element, but expanded"),
            ("bias", [0.0] * 501, "but of type list"),
            ("bias", torch.zeros(501, device="meta"), "not dense, or without data"),
        ):  # fmt: skip

            def run(comm, name=name, other=other):
                WeightSync(comm, {**tensors(), **({name: other} if comm.rank == 1 else {})})

            for error in errors_of_ranks(3, run):
                self.assertIsInstance(error, onebit.InvalidArgument)
                self.assertRegex(str(error), text)

    def test_roots_and_things_that_are_no_tensors(self):
        def other_root(comm):
            WeightSync(comm, tensors(), root=comm.rank)

        def no_rank(comm):
            WeightSync(comm, tensors(), root=2)

        def no_tensors(comm):
            WeightSync(comm, {"a": torch.zeros(3), "b": 5})

        for function, text in (
            (other_root, "root is 0 on rank 0, but 1 on rank 1"),
            (no_rank, "root is 2, but ranks are 0 to 1"),
            (no_tensors, "'b' is not a tensor, but of type int"),
        ):
            for error in errors_of_ranks(2, function):
                self.assertIsInstance(error, onebit.InvalidArgument)
                self.assertIn(text, str(error))

    def test_a_reader_that_missed_changes_which_cancel_out(self):
        """Sums over elements would be the same: two signs, and distances of +1, -2 and +1."""

        def run(comm):
            two = comm.split(0 if comm.rank < 2 else 1)
            mine = {"": torch.ones(100), "b": torch.ones(64).bfloat16()}
            sync = WeightSync(comm, mine)
            sync.update()
            if comm.rank == 0:
                mine[""][[3, 5, 20, 40]] *= -1
                mine["b"].view(torch.int16)[[1, 5, 9]] += torch.tensor([1, -2, 1], dtype=torch.int16)
            if comm.rank < 2:
                sync.move(two)
                sync.update()
            sync.move(comm)
            self.assertTrue(sync.update().is_full)
            return {name: value.clone() for name, value in mine.items()}

        first, *others = run_ranks(3, run)
        for other in others:
            self.assertTrue(same(first, other))
        self.assertEqual(int((first[""] < 0).sum()), 4)

    def test_two_objects_on_a_communicator(self):
        def run(comm):
            sync = WeightSync(comm, tensors())
            WeightSync(comm, {"other": torch.zeros(3)}).update()
            with self.assertRaisesRegex(onebit.InvalidArgument, "tensorId"):
                WeightSync(comm, tensors())
            with self.assertRaisesRegex(TypeError, "model.state_dict.., and not a list"):
                WeightSync(comm, list(tensors().values()))
            sync.close()
            WeightSync(comm, tensors()).update()

        run_ranks(2, run)

    def test_a_root_that_cannot_read_holds_up_nobody(self):
        have_begun = threading.Barrier(2)

        def run(comm):
            sync = WeightSync(comm, tensors())
            have_begun.wait(100)  # an abort overtakes messages
            if comm.rank == 0:
                sync._tensors["bias"] = torch.zeros(2)  # pylint: disable=protected-access
            with self.assertRaises(RuntimeError if comm.rank == 0 else onebit.Error):
                sync.update()

        run_ranks(2, run)

    def test_ranks_leave_and_join(self):
        def run(comm):
            two = comm.split(0 if comm.rank < 2 else 1)
            mine, trainers = tensors(comm.rank), tensors(0)
            sync = WeightSync(comm, mine)
            sync.update()
            kinds = []
            if comm.rank < 2:  # without the last reader
                sync.move(two)
                for step in range(2):
                    change(trainers, step)
                    if comm.rank == 0:
                        change(mine, step)
                    kinds.append(sync.update().is_full)
                    self.assertTrue(same(mine, trainers))
                sync.move(comm)
            else:
                sync.move(comm)
                for step in range(2):
                    change(trainers, step)
            for step in range(2, 4):
                change(trainers, step)
                if comm.rank == 0:
                    change(mine, step)
                kinds.append(sync.update().is_full)
                self.assertTrue(same(mine, trainers))
            return kinds

        self.assertEqual(
            run_ranks(3, run), [[False, False, True, False], [False, False, True, False], [True, False]]
        )

    def test_a_failed_update_changes_nothing(self):
        have_it = threading.Barrier(3)

        def run(comm):
            mine = tensors(comm.rank)
            sync = WeightSync(comm, mine)
            sync.update()
            before = {name: value.clone() for name, value in mine.items()}
            if comm.rank == 0:
                change(mine, 1)
            have_it.wait(100)  # an abort overtakes messages
            if comm.rank == 2:
                comm.abort()
                return
            with self.assertRaises(onebit.Error):
                sync.update()
            if comm.rank == 1:
                self.assertTrue(same(mine, before))

        run_ranks(3, run)

    def test_modules_and_parameters(self):
        def run(comm):
            torch.manual_seed(comm.rank)
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
            sync = WeightSync(comm, model.state_dict())
            by_parameter = WeightSync(comm.split(0), dict(model.named_parameters()))
            sync.update()
            by_parameter.update()
            return {name: value.clone() for name, value in model.state_dict().items()}

        first, second = run_ranks(2, run)
        self.assertTrue(same(first, second))


class ExampleTest(unittest.TestCase):
    """Readers as processes, some of which are killed in the middle of updates, and come again."""

    def test_readers_are_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_job(pathlib.Path(folder))

    def run_job(self, folder: pathlib.Path) -> None:
        draw = random.Random(STEPS)
        command = [sys.executable, "-B", str(EXAMPLE), str(folder)]
        names = ["a", "b", "c"]

        def read(name: str) -> subprocess.Popen:
            return subprocess.Popen([*command, "--read", name])

        def versions(name: str) -> list:
            log = folder / f"{name}.versions"
            return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

        with open(folder / "trainer", "w", encoding="utf-8") as output:
            trainer = subprocess.Popen(
                [*command, "--steps", str(STEPS), "--readers", "3"], stdout=output, stderr=subprocess.STDOUT
            )
        readers = {name: read(name) for name in names}
        try:
            kills = sorted(draw.sample(range(3, STEPS - STEPS // 5), KILLS))
            for step in kills:
                name = draw.choice(names)
                while trainer.poll() is None and f"step {step}:" not in (folder / "trainer").read_text():
                    time.sleep(0.01)
                readers[name].kill()
                readers[name].wait()
                readers[name] = read(name)
            self.assertEqual(trainer.wait(), 0, (folder / "trainer").read_text())
            sent = self.sent_versions(folder)
            last = max(sent)
            # A reader that was killed near the end may come again when the trainer is gone.
            meetings = sorted(folder.glob("*.meeting"), key=lambda file: int(file.stem))
            for name in json.loads(meetings[-1].read_text())[0]:
                while not any(int(version) >= last for version, _ in versions(name)):
                    self.assertIsNone(readers[name].poll(), name)
                    time.sleep(0.01)
        finally:
            for process in [trainer, *readers.values()]:
                process.kill()
                process.wait()
        output = (folder / "trainer").read_text()
        self.assertEqual(len(sent), STEPS, output)
        self.assertGreater(len(re.findall("what has changed", output)), STEPS // 2, output)
        digests = {}  # a version whose update failed on the trainer may have reached some readers
        for name in names:
            seen = {int(version): digest for version, digest in versions(name)}
            self.assertGreater(len(seen), 2)
            for version, digest in seen.items():
                self.assertEqual(digest, digests.setdefault(version, sent.get(version, digest)), (name, version))

    @staticmethod
    def sent_versions(folder: pathlib.Path) -> dict:
        found = re.findall(r"^step \d+: version (\d+) ([0-9a-f]+),", (folder / "trainer").read_text(), re.MULTILINE)
        return {int(version): digest for version, digest in found}


if __name__ == "__main__":
    unittest.main()
