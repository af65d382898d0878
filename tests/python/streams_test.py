# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Calls on streams: results, what they keep alive, errors, functions."""

import gc
import threading
import unittest
import weakref

import numpy

import onebit
from rank_threads_case import run_ranks


def held_stream() -> "tuple[onebit.Stream, threading.Event]":
    """A stream that makes no call before the event is set."""
    stream, gate = onebit.Stream(), threading.Event()
    stream.call(gate.wait)
    return stream, gate


class StreamsTest(unittest.TestCase):
    def test_results_are_those_of_blocking_calls(self):
        def check(comm):
            results = []
            for stream in (None, onebit.Stream()):
                compressor = onebit.Compressor(comm, 10000, codec="fp4")
                ours = numpy.random.default_rng(comm.rank).standard_normal(10000).astype("f4")
                for _ in range(3):
                    comm.all_reduce(ours, op="avg", compressor=compressor, stream=stream)
                if stream is not None:
                    stream.synchronize()
                    self.assertTrue(stream.query())
                    stream.close()
                compressor.close()
                results.append(ours.tobytes())
            self.assertEqual(*results)

        run_ranks(2, check)

    def test_pending_calls_keep_what_they_use(self):
        comm = onebit.Communicator.init_all(1)[0]
        stream, gate = held_stream()
        ours, result = numpy.full(10000, 3, "f4"), numpy.zeros(10000, "f4")
        compressor = onebit.Compressor(comm, 10000)
        comm.all_reduce(ours, out=result, op="avg", compressor=compressor, stream=stream)
        with onebit.group():
            grouped = numpy.ones(10, "f4")
            comm.all_reduce(grouped, stream=stream)
        gone = [weakref.ref(each) for each in (ours, compressor, comm, grouped)]
        del ours, compressor, comm, grouped
        gc.collect()
        self.assertTrue(all(each() is not None for each in gone))
        self.assertFalse(stream.query())
        gate.set()
        stream.synchronize()
        gc.collect()
        self.assertTrue(all(each() is None for each in gone))
        self.assertTrue((result == 3).all())

    def test_a_pending_group_keeps_what_all_its_calls_use(self):
        (comm,) = onebit.Communicator.init_all(1)
        stream, gate = held_stream()
        arrays = [numpy.ones(4, "f4") for _ in range(3000)]
        alive = [weakref.ref(array) for array in arrays]
        with onebit.group():
            for array in arrays:
                comm.all_reduce(array, stream=stream)
        del array, arrays
        gc.collect()
        self.assertTrue(all(each() is not None for each in alive))
        gate.set()
        stream.synchronize()
        gc.collect()
        self.assertFalse(any(each() is not None for each in alive))
        stream.close()
        comm.close()

    def test_handles_of_pending_calls_cannot_be_closed(self):
        comm = onebit.Communicator.init_all(1)[0]
        stream, gate = held_stream()
        with onebit.Compressor(comm, 10) as compressor:
            comm.all_reduce(numpy.ones(10, "f4"), compressor=compressor, stream=stream)
            for handle in (comm, compressor):
                with self.assertRaisesRegex(onebit.InvalidUsage, "pending"):
                    handle.close()
                self.assertFalse(handle.is_closed)
            with self.assertRaisesRegex(onebit.InvalidUsage, "pending"):
                comm.barrier()
            gate.set()
            stream.close()
            self.assertTrue(stream.is_closed)
        comm.close()

    def test_a_collected_stream_finishes_its_calls(self):
        comm = onebit.Communicator.init_all(1)[0]
        stream, gate = held_stream()
        result = numpy.zeros(10, "f4")
        comm.all_reduce(numpy.full(10, 3, "f4"), out=result, stream=stream)
        gate.set()
        del stream
        gc.collect()
        self.assertTrue((result == 3).all())

    def test_errors_come_with_synchronize(self):
        def differ(comm):
            stream = onebit.Stream()
            comm.all_reduce(numpy.ones(10 + comm.rank, "f4"), stream=stream)
            with self.assertRaisesRegex(onebit.Mismatch, "10.*11|11.*10"):
                stream.synchronize()
            stream.synchronize()
            comm.barrier(stream=stream)
            with self.assertRaises(onebit.Mismatch):
                stream.close()
            self.assertTrue(stream.is_closed)

        run_ranks(2, differ)

    def test_functions_run_in_order_and_pass_on_exceptions(self):
        comm = onebit.Communicator.init_all(1)[0]
        ours, seen = numpy.ones(10, "f4"), []
        with onebit.Stream() as stream:
            for _ in range(3):
                comm.all_reduce(ours, stream=stream)
                stream.call(lambda: seen.append(float(ours[0])) or numpy.add(ours, 1, out=ours))
            stream.synchronize()
            self.assertEqual(seen, [1, 2, 3])
            stream.call(lambda: {}["missing"])
            stream.call(lambda: seen.append("behind the error"))
            with self.assertRaises(onebit.InternalError) as raised:
                stream.synchronize()
            self.assertIsInstance(raised.exception.__cause__, KeyError)
            self.assertEqual(len(seen), 3)
            stream.call(lambda: seen.append("afterwards"))
        self.assertEqual(seen[3:], ["afterwards"])


if __name__ == "__main__":
    unittest.main()
