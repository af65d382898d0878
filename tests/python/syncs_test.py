# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Syncs on ranks that are threads: when they send, what comes out, states, refusals."""

import unittest

import numpy

import onebit
from rank_threads_case import run_ranks

RANKS = 3
SIGNS = numpy.where(numpy.arange(640) % 3 == 0, 1, -1).astype("f4")


class SyncsTest(unittest.TestCase):
    def test_steps_of_a_schedule(self):
        def check(comm):
            compressor = onebit.Compressor(comm, 640)
            sync = onebit.Sync(compressor, warmup_steps=2, base_interval=3)
            self.assertEqual(sync.upcoming(8), "11..1..1")
            found = []
            for _ in range(8):
                before, out = comm.stats().bytes_sent, numpy.zeros(640, "f4")
                weight_sum = sync.step(SIGNS * numpy.float32(0.5), 0.5, out=out)
                # Elements of one magnitude lose nothing by their signs.
                self.assertEqual(weight_sum is not None, comm.stats().bytes_sent > before)
                numpy.testing.assert_array_equal(out, SIGNS * numpy.float32(weight_sum or 0))
                found.append(weight_sum)
            self.assertEqual(found, [0.5, 0.5, None, None, 1.5, None, None, 1.5])
            with self.assertRaisesRegex(onebit.InvalidUsage, "sync"):
                compressor.close()
            sync.close()
            compressor.close()

        run_ranks(RANKS, check)

    def test_states_continue(self):
        def check(comm):
            syncs = [onebit.Sync(onebit.Compressor(comm, 640), base_interval=3) for _ in range(2)]
            noise = numpy.random.default_rng(comm.rank).standard_normal((6, 640)).astype("f4")
            for step in range(4):
                syncs[0].step(noise[step].copy(), 1)
            syncs[1].import_state(syncs[0].export_state())
            outs = numpy.zeros((2, 640), "f4")
            for step in (4, 5):
                for sync, out in zip(syncs, outs):
                    sync.step(noise[step], 1, out=out)
            self.assertTrue(outs[0].any())
            numpy.testing.assert_array_equal(*outs)

        run_ranks(RANKS, check)

    def test_what_is_refused(self):
        def check(comm):
            sync = onebit.Sync(onebit.Compressor(comm, 640))
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "step: array has 3 elements, but needs 640"
            ):
                sync.step(numpy.zeros(3, "f4"), 1)
            with self.assertRaisesRegex(
                onebit.InvalidArgument, "step: out has elements of float64, not float32"
            ):
                sync.step(SIGNS, 1, out=numpy.zeros(640))
            with onebit.Stream() as stream, self.assertRaisesRegex(
                onebit.InvalidArgument, "Stream.call"
            ):
                sync.step(SIGNS.copy(), 1, stream=stream)
            with self.assertRaisesRegex(onebit.InvalidArgument, "max"):
                onebit.Sync(onebit.Compressor(comm, 640), base_interval=3, max_interval=2)

        run_ranks(1, check)


if __name__ == "__main__":
    unittest.main()
