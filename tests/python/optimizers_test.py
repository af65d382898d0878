# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers on ranks that are threads: equal parameters, dense steps of Adam, states, refusals."""

import math
import unittest

import numpy

import onebit
from rank_threads_case import run_ranks

RANKS = 3
COUNT = 1000


def gradients(parameters: numpy.ndarray, rank: int, step: int) -> numpy.ndarray:
    """Gradients of a quadratic with its minimum at 1, with noise."""
    noise = numpy.random.default_rng([rank, step]).standard_normal(COUNT).astype("f4")
    return (parameters - 1 + 0.1 * noise).astype("f4")


def adam(steps: int, rate: float) -> numpy.ndarray:
    """Parameters after steps of Adam on mean gradients, without bias correction."""
    x, m, v = numpy.zeros(COUNT), numpy.zeros(COUNT), numpy.zeros(COUNT)
    for step in range(steps):
        mean = (
            sum(gradients(x.astype("f4"), rank, step).astype("f8") for rank in range(RANKS)) / RANKS
        )
        m, v = 0.9 * m + 0.1 * mean, 0.999 * v + 0.001 * mean**2
        x -= rate * m / (numpy.sqrt(v) + 1e-8)
    return x


class OptimizersTest(unittest.TestCase):
    def train(self, comm, steps, *, learn=0.01, **options):
        parameters = numpy.zeros(COUNT, "f4")
        optimizer = onebit.Optimizer(comm, parameters, **options)
        for step in range(steps):
            result = optimizer.step(gradients(parameters, comm.rank, step), learn)
            self.assertEqual((result.step, result.skipped), (step + 1, 0))
        return parameters, optimizer

    def test_dense_steps_are_those_of_adam(self):
        def check(comm):
            parameters, optimizer = self.train(comm, 10, freeze_step="never")
            numpy.testing.assert_allclose(parameters, adam(10, 0.01), atol=1e-5)
            momentum, variance = numpy.empty(COUNT, "f4"), numpy.empty(COUNT, "f4")
            optimizer.get_moment("m", momentum)
            optimizer.get_moment("v", variance, segment=0)
            self.assertTrue(momentum.any() and (variance > 0).all())
            optimizer.set_moment("m", momentum * 2)
            again = numpy.empty(COUNT, "f4")
            optimizer.get_moment("m", again)
            numpy.testing.assert_array_equal(again, momentum * 2)
            with self.assertRaisesRegex(onebit.InvalidArgument, "z"):
                optimizer.get_moment("z", again)
            with self.assertRaisesRegex(onebit.InvalidArgument, "elements"):
                optimizer.get_moment("m", again[1:].copy())
            with self.assertRaises(onebit.InvalidArgument):
                optimizer.get_moment("m", again, segment=1)

        run_ranks(RANKS, check)

    def test_ranks_stay_equal_and_send_less(self):
        def check(comm):
            found = []
            for options in (
                {"freeze_step": 5},
                {"algorithm": "one_bit_lamb", "freeze_step": 5},
                {"algorithm": "zero_one_adam", "var_freeze_step": 5, "local_step_clipper": 1},
            ):
                parameters, optimizer = self.train(comm, 12, **options)
                stats = optimizer.stats()
                self.assertEqual(stats.step, 12)
                self.assertGreater(stats.compressed_steps, 5)
                found.append(parameters.tobytes())
                optimizer.close()
            return found

        first, *others = run_ranks(RANKS, check)
        for other in others:
            self.assertEqual(first, other)

    def test_states_continue_bit_for_bit(self):
        def check(comm):
            parameters, optimizer = self.train(comm, 8, freeze_step=4)
            state, common = optimizer.export_state(), optimizer.export_state("global")
            others = numpy.zeros(COUNT, "f4")
            other = onebit.Optimizer(comm, others, freeze_step=4)
            other.import_state(state)
            self.assertEqual(parameters.tobytes(), others.tobytes())
            for one, values in ((optimizer, parameters), (other, others)):
                one.step(gradients(values, comm.rank, 8), 0.01)
            self.assertEqual(parameters.tobytes(), others.tobytes())
            return common

        self.assertEqual(len(set(run_ranks(RANKS, check))), 1)

    def test_segments_masks_and_a_copy(self):
        keep = numpy.arange(600) % 2 == 0

        def check(comm):
            copy = numpy.zeros(COUNT, "f2")
            segments = [
                onebit.Segment(400, dense=True, lr_scale=0),
                onebit.Segment(600, mask=numpy.packbits(keep, bitorder="little")),
            ]
            parameters, _ = self.train(
                comm,
                6,
                freeze_step=3,
                segments=segments,
                parameter_copy=copy,
                compressor={"block": "tensor"},
            )
            self.assertFalse(parameters[:400].any())
            self.assertTrue(parameters[400:][keep].all())
            self.assertFalse(parameters[400:][~keep].any())
            numpy.testing.assert_array_equal(copy, parameters.astype("f2"))

        run_ranks(RANKS, check)

    def test_a_settled_freeze_needs_few_steps(self):
        def check(comm):
            parameters = numpy.zeros(COUNT, "f4")
            optimizer = onebit.Optimizer(
                comm, parameters, freeze_step="settled", bias_correction=True
            )
            for _ in range(40):  # of the 1000 over which beta2 averages
                optimizer.step(numpy.ones(COUNT, "f4"), 1e-3)
            self.assertEqual(optimizer.stats().frozen_at, 33)
            optimizer.close()

        run_ranks(RANKS, check)

    def test_a_rare_row_is_not_thrown(self):
        rows, touched, rate = numpy.zeros((64, 16), "f4"), 700, 1e-3

        def farthest(comm, **flags):
            """How far row 0, which has one gradient in 1000 steps, gets away from 0."""
            table = rows.copy()
            optimizer = onebit.Optimizer(
                comm, segments=[onebit.Segment(parameters=table, **flags)], algorithm="zero_one_adam",
                beta2=0.99, lr_warmup_steps=50, var_freeze_step=200, local_step_scaler=100,
            )
            noise, most = numpy.random.default_rng(comm.rank), 0.0
            for step in range(1000):
                gradient = noise.uniform(-1, 1, rows.shape).astype("f4")
                gradient[0] *= 1e-6
                if step == touched and comm.rank == 1:
                    gradient[0] = 1
                optimizer.step(gradient, rate * min(1, (step + 1) / 50))
                most = max(most, float(abs(table[0]).max()))
            optimizer.close()
            return most

        def check(comm):
            return [farthest(comm, **flags) for flags in
                    ({}, {"rare_rows": True}, {"rare_rows": True, "dense": True})]

        for default, rare, dense in run_ranks(2, check):
            self.assertLess(default, 200 * rate)
            self.assertLess(rare, 20 * rate)
            self.assertLess(dense, 20 * rate)

    def test_arrays_of_their_own_give_the_same_bytes(self):
        counts = [300, 0, 700]

        def check(comm):
            whole, flat = self.train(comm, 6, freeze_step=3, scales="fused")
            layers = [numpy.zeros(count, "f4") for count in counts]
            copies = [numpy.zeros(count, "f2") for count in counts]
            segments = [
                onebit.Segment(parameters=layer, parameter_copy=copy)
                for layer, copy in zip(layers, copies)
            ]
            optimizer = onebit.Optimizer(comm, segments=segments, freeze_step=3, scales="fused")
            for step in range(6):
                parts = numpy.split(gradients(numpy.concatenate(layers), comm.rank, step), [300, 300])
                for index in (2, 0, 1) if comm.rank == 0 else (0, 1, 2):
                    optimizer.add_gradient(index, parts[index].copy())
                self.assertEqual(optimizer.step(None, 0.01).step, step + 1)
            numpy.testing.assert_array_equal(numpy.concatenate(layers), whole)
            numpy.testing.assert_array_equal(numpy.concatenate(copies), whole.astype("f2"))
            momentum = numpy.empty(700, "f4")
            optimizer.get_moment("m", momentum, segment=2)
            self.assertTrue(momentum.any())
            with self.assertRaisesRegex(onebit.InvalidUsage, "segment 0 has none"):
                optimizer.step(None, 0.01)
            optimizer.add_gradient(0, None)
            with self.assertRaisesRegex(onebit.InvalidUsage, "already"):
                optimizer.add_gradient(0, None)
            optimizer.forget_gradients()
            optimizer.add_gradient(0, None)
            optimizer.add_gradient(2, None)
            self.assertEqual(optimizer.step(None, 0.01).step, 7)
            optimizer.set_rates(0, lr_scale=0, weight_decay=0.5)
            before = [layer.copy() for layer in layers]
            optimizer.step(numpy.ones(COUNT, "f4"), 0.01)
            numpy.testing.assert_array_equal(layers[0], before[0])
            self.assertTrue((layers[2] != before[2]).all())
            flat.close()

        run_ranks(RANKS, check)

    def test_a_bad_gradient_skips_the_step_everywhere(self):
        def check(comm):
            parameters, optimizer = self.train(comm, 2)
            before = parameters.copy()
            bad = gradients(parameters, comm.rank, 2)
            if comm.rank == 1:
                bad[5] = math.nan
            self.assertEqual(optimizer.step(bad, 0.01).skipped, 1)
            numpy.testing.assert_array_equal(parameters, before)
            result = optimizer.step(
                gradients(parameters, comm.rank, 2), 0.01, max_grad_norm=math.inf
            )
            self.assertGreater(result.grad_norm, 0)

        run_ranks(RANKS, check)

    def test_what_is_refused(self):
        def check(comm):
            parameters = numpy.zeros(COUNT, "f4")
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "float16, but must be float32.*parameter_copy"
            ):
                onebit.Optimizer(comm, parameters.astype("f2"))
            with self.assertRaisesRegex(
                TypeError, "no option 'betas'; the options are: algorithm, variant"
            ):
                onebit.Optimizer(comm, parameters, betas=(0.9, 0.999))
            with self.assertRaisesRegex(
                ValueError, "'soon' is neither a number of steps nor one of: automatic, settled, never"
            ):
                onebit.Optimizer(comm, parameters, freeze_step="soon")
            with self.assertRaisesRegex(onebit.InvalidArgument, "beta1"):
                onebit.Optimizer(comm, parameters, beta1=2.0)
            with self.assertRaisesRegex(onebit.InvalidArgument, "parameters, or segments"):
                onebit.Optimizer(comm)
            with self.assertRaisesRegex(onebit.InvalidArgument, r"segments\[0\] has neither a count"):
                onebit.Optimizer(comm, segments=[onebit.Segment()])
            with self.assertRaisesRegex(onebit.InvalidArgument, "parameters has 1000.*needs 3"):
                onebit.Optimizer(comm, parameters, segments=[onebit.Segment(3)])
            copies = [numpy.zeros(2, "f2"), numpy.zeros(2, "u1")]
            with self.assertRaisesRegex(onebit.InvalidArgument, "other copies have float16"):
                onebit.Optimizer(
                    comm,
                    segments=[
                        onebit.Segment(parameters=parameters[:2], parameter_copy=copy)
                        for copy in copies
                    ],
                )
            with onebit.Optimizer(comm, parameters) as optimizer:
                with self.assertRaisesRegex(onebit.InvalidArgument, "segment is 1, but there are 1"):
                    optimizer.set_rates(1, lr_scale=1)
                for call in (
                    lambda: optimizer.add_gradient(-1, None),
                    lambda: optimizer.get_moment("m", numpy.zeros(3, "f4"), segment=-1),
                    lambda: optimizer.set_moment("m", numpy.zeros(3, "f4"), segment=-1),
                ):
                    with self.assertRaisesRegex(onebit.InvalidArgument, "segment is -1"):
                        call()
                with self.assertRaisesRegex(onebit.InvalidArgument, "segment 0 has 3.*needs 1000"):
                    optimizer.add_gradient(0, numpy.zeros(3, "f4"))
                with self.assertRaisesRegex(
                    onebit.InvalidArgument, "step: gradients has 3 elements, but needs 1000"
                ):
                    optimizer.step(numpy.zeros(3, "f4"), 0.1)
                with onebit.Stream() as stream, self.assertRaisesRegex(
                    onebit.InvalidArgument, "Stream.call"
                ):
                    optimizer.step(parameters.copy(), 0.1, stream=stream)
                with self.assertRaisesRegex(onebit.InvalidUsage, "onebitAlgorithmOneBitLamb"):
                    optimizer.trust_ratio()

        run_ranks(1, check)


if __name__ == "__main__":
    unittest.main()
