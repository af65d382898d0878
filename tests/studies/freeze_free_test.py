# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/studies/freeze_free: its optimizers against PyTorch's AdamW, its average of signs against the library's, its
tables, and a small study. Skipped without PyTorch."""

import concurrent.futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("PyTorch (python3-torch) not found")
    sys.exit(77)

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
sys.path[:0] = [str(PERF / "studies"), str(PERF)]

# pylint: disable=wrong-import-position
import onebit
from freeze_free.freeze_free_tables import Cell, cell_table, verdict
from freeze_free.flat_optimizers import DenseAdamW, LocalVariance, OnebitAdam, Parameters
from freeze_free.sign_average import SignAverage, blocks_of
from freeze_free.study_models import LSTM, Text, flattened

BETAS = (0.9, 0.99)
STARTS = [0, 5000, 5064]
COUNT = 20000


def parameters_of(values: torch.Tensor) -> Parameters:
    return Parameters(values.clone(), STARTS, torch.full((len(values),), 0.1))


def drawn(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class SignAverageTest(unittest.TestCase):
    def test_agrees_with_the_library(self):
        for count, ranks in ((COUNT, 2), (COUNT, 3), (5200, 4)):
            with self.subTest(count=count, ranks=ranks):
                calls = [drawn(ranks, count, seed=call) for call in range(4)]
                average = SignAverage(count, ranks, STARTS)
                for call, (ours, theirs) in enumerate(zip(map(average.average, calls), of_library(calls, STARTS[1:]))):
                    torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=0, msg=f"call {call}")

    def test_blocks_restart_at_chunks_and_parameters(self):
        self.assertEqual(blocks_of(10000, 1, [0, 5000, 5064]),
                         [(0, 4096), (4096, 5000), (5000, 5064), (5064, 9160), (9160, 10000)])
        self.assertEqual(blocks_of(200, 2, [0, 100]), [(0, 100), (100, 128), (128, 200)])


def of_library(calls: list, cuts: list) -> list:
    """Results of the same calls by the library, from ranks that are threads; all ranks have the same."""
    ranks, count = calls[0].shape

    def results(comm: onebit.Communicator) -> list:
        compressor = onebit.Compressor(comm, count, codec="sign", cuts=cuts)
        found = [call[comm.rank].clone() for call in calls]
        for values in found:
            comm.all_reduce(values, op="avg", compressor=compressor)
        compressor.close()
        return found

    comms = onebit.Communicator.init_all(ranks)
    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        by_rank = list(pool.map(results, comms))
    for comm in comms:
        comm.close()
    assert all(torch.equal(mine, first) for found in by_rank for mine, first in zip(found, by_rank[0]))
    return by_rank[0]


class OptimizerTest(unittest.TestCase):
    def assert_is_adamw(self, optimizer, steps: int = 12) -> None:
        reference = torch.nn.Parameter(drawn(COUNT))
        adamw = torch.optim.AdamW([reference], lr=0.01, betas=BETAS, weight_decay=0.1)
        for step in range(steps):
            gradients = drawn(optimizer.ranks, COUNT, seed=step)
            optimizer.step(gradients, 0.01)
            reference.grad = gradients.mean(0)
            adamw.step()
            torch.testing.assert_close(optimizer.parameters.values, reference.detach(), rtol=1e-5, atol=1e-6)

    def test_dense_is_adamw(self):
        self.assert_is_adamw(DenseAdamW(parameters_of(drawn(COUNT)), 4, BETAS))

    def test_one_rank_whose_variance_is_always_fresh_is_adamw(self):
        optimizer = LocalVariance(parameters_of(drawn(COUNT)), 1, BETAS, every=1, wire=torch.float32)
        self.assert_is_adamw(optimizer)

    def test_onebit_adam_is_adamw_until_the_freeze(self):
        optimizer = OnebitAdam(parameters_of(drawn(COUNT)), 4, BETAS, freeze_step=5)
        self.assert_is_adamw(optimizer, 5)
        frozen = optimizer.variance
        optimizer.step(drawn(4, COUNT), 0.01)
        self.assertTrue(torch.equal(optimizer.variance, frozen))
        block = optimizer.momentum[STARTS[1]:5056].abs()  # up to the chunk of the next rank: one scale
        self.assertTrue(torch.equal(block, block[:1].expand_as(block)))

    def test_variances_are_means_of_local_ones_at_their_steps(self):
        optimizer = LocalVariance(parameters_of(drawn(COUNT)), 4, BETAS, first=2, every=4)
        expected, renewed = torch.zeros(4, COUNT), []
        for step in range(1, 10):
            gradients = drawn(4, COUNT, seed=step)
            before = optimizer.variance
            optimizer.step(gradients, 0.01)
            expected = BETAS[1] * expected + (1 - BETAS[1]) * gradients**2
            if not torch.equal(before, optimizer.variance):
                renewed.append(step)
                exact = expected.mean(0) / (1 - BETAS[1]**step)
                torch.testing.assert_close(optimizer.variance, exact, rtol=2**-7, atol=0)  # bf16, twice
        self.assertEqual(renewed, [1, 2, 4, 8])

    def test_the_floor_bounds_denominators_and_keeps_dead_elements(self):
        optimizer = DenseAdamW(parameters_of(drawn(COUNT)), 1, BETAS, floor=0.5)
        optimizer.parameters.decay.zero_()
        gradients = torch.ones(1, COUNT)
        gradients[0, STARTS[1]:STARTS[2]:2] = 0
        gradients[0, STARTS[1] + 1] = 1e-3
        before = optimizer.parameters.values.clone()
        optimizer.step(gradients, 0.01)
        moved = (before - optimizer.parameters.values)[STARTS[1]:STARTS[2]]
        self.assertEqual(moved[::2].abs().max(), 0)
        root_mean_square = ((31 + 1e-6) / 64)**0.5
        self.assertAlmostEqual(moved[1].item(), 0.01 * 1e-3 / (0.5 * root_mean_square), delta=1e-6)
        self.assertAlmostEqual(moved[3].item(), 0.01, delta=1e-6)


class ModelTest(unittest.TestCase):
    def test_parameters_are_views_of_one_vector(self):
        model = LSTM(7)
        parameters = flattened(model)
        parameters.values.zero_()
        self.assertTrue(all(not parameter.any() for parameter in model.parameters()))
        self.assertEqual(parameters.decay.count_nonzero(),
                         sum(each.numel() for each in model.parameters() if each.dim() > 1))

    def test_held_out_text_is_not_trained_on(self):
        text = Text(b"ab" * 950 + b"c" * 100)
        tokens, following = text.batches(2, 50, torch.Generator().manual_seed(1))
        self.assertTrue(torch.equal(tokens[..., 1:], following[..., :-1]))
        self.assertEqual(following.unique().tolist(), [0, 1])
        self.assertEqual(text.held_out()[0].unique().tolist(), [2])


def runs(*losses) -> list:
    return [{"held_out_loss": loss, "accuracy": 0.5, "model": "m", "method": "x", "batch": 4, "ranks": 2, "rate": 0.01}
            for loss in losses]


class TablesTest(unittest.TestCase):
    def test_differences_are_paired_by_seed(self):
        cell = Cell(runs(2.0, 4.0), runs(2.04, 4.0))
        row = cell_table([cell])[2]
        self.assertIn("+2.0 +0.0", row)
        self.assertIn("+1.00 ± 1.00 %", row)
        self.assertIn("no", row)

    def test_a_cell_passes_within_half_a_percent_and_without_divergence(self):
        fine, better = Cell(runs(2.0, 2.0), runs(2.018, 2.0)), Cell(runs(2.0), runs(1.0))
        diverged, both = Cell(runs(2.0, 2.0), runs(1.9, None)), Cell(runs(None, 2.0), runs(None, 2.0))
        self.assertEqual([cell.passes() for cell in (fine, better, diverged, both)], [True, True, False, True])
        self.assertIn("1 diverged", cell_table([diverged])[2])
        self.assertIn("in 2 of 2 cells; 0 runs diverged where AdamW did not: keep it.", verdict([fine, better]))
        self.assertIn("in 1 of 2 cells; 1 runs diverged where AdamW did not: do not", verdict([fine, diverged]))

    def test_a_cell_whose_runs_all_diverged_is_shown(self):
        cell = Cell(runs(2.0), runs(None))
        self.assertFalse(cell.passes())
        self.assertIn("1 diverged", cell_table([cell])[2])


class ToolTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_tool(self, text: str) -> subprocess.CompletedProcess:
        (self.folder / "text").write_text(text)
        return subprocess.run([sys.executable, "-B", str(PERF / "studies" / "freeze_free" / "run"), "--models", "lstm",
                               "--seeds", "7", "--ranks", "2", "--steps", "3", "--text", str(self.folder / "text"),
                               "--out", str(self.folder / "out")],
                              capture_output=True, text=True, timeout=100, check=False)

    def test_a_study_goes_on_where_it_ended(self):
        text = "".join(f"line {i % 7} of {i % 11}\n" for i in range(300))
        done = self.run_tool(text)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"Within 0\.5 % of AdamW in [0-2] of 2 cells; 0 runs diverged")
        results = {path: json.loads(path.read_text()) for path in (self.folder / "out").iterdir()}
        self.assertEqual(len(results), len(done.stderr.splitlines()))
        cells = {(run["method"], run["ranks"], run["batch"]): run for run in results.values() if run["ranks"] == 2}
        self.assertEqual(set(cells), {(method, 2, batch) for method in ("dense", "lva-floor") for batch in (4, 32)})
        for batch in (4, 32):
            dense, local = cells["dense", 2, batch], cells["lva-floor", 2, batch]
            self.assertEqual(dense["first_losses"][0], local["first_losses"][0])  # same values and batches
            self.assertNotEqual(dense["held_out_loss"], local["held_out_loss"])
            self.assertAlmostEqual(local["rate"], dense["rate"] * math.sqrt(2))

        again = self.run_tool(text)
        self.assertEqual((again.stdout, again.stderr), (done.stdout, ""))
        other = self.run_tool(text + "more")
        self.assertEqual(other.returncode, 1, other)
        self.assertIn("remove it, or give --out", other.stderr)


if __name__ == "__main__":
    unittest.main()
