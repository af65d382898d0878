# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Each result of the C API is an exception of its own, raised where the C API returns it."""

import os
import threading
import unittest

import numpy

import onebit
from onebit import _errors
from rank_threads_case import errors_of_ranks, run_ranks

ones = numpy.ones(1000, "f4")


class ExceptionsTest(unittest.TestCase):
    def test_each_result_has_a_class(self):
        errors = set(onebit.Result) - {onebit.Result.SUCCESS, onebit.Result.IN_PROGRESS}
        for result in errors:
            error = _errors.error_of(result, "rank 3: cause")
            self.assertIsInstance(error, onebit.Error)
            self.assertIs(type(error), getattr(onebit, type(error).__name__))
            self.assertEqual(type(error).__name__.upper(), result.name.replace("_", ""))
            self.assertEqual(
                (error.result, error.text, str(error)), (result, "rank 3: cause", "rank 3: cause")
            )
        self.assertEqual({each.result for each in onebit.Error.__subclasses__()}, errors)
        self.assertIsInstance(_errors.error_of(99, "text"), onebit.InternalError)

    def test_python_programs_can_catch_the_usual_classes(self):
        for ours, usual in (
            (onebit.InvalidArgument, ValueError),
            (onebit.Timeout, TimeoutError),
            (onebit.OutOfMemory, MemoryError),
            (onebit.SystemError, OSError),
        ):
            self.assertTrue(issubclass(ours, usual))

    def test_invalid_argument(self):
        def check(comm):
            for text, options in (("block is 100", {"block": 100}), ("codec", {"k": 3})):
                with self.assertRaisesRegex(onebit.InvalidArgument, text):
                    onebit.Compressor(comm, 1000, **options)
            with onebit.Compressor(comm, 999) as compressor, self.assertRaisesRegex(
                onebit.InvalidArgument, "999"
            ):
                comm.all_reduce(ones.copy(), compressor=compressor)
            with self.assertRaisesRegex(onebit.InvalidArgument, "root"):
                comm.broadcast(ones.copy(), root=2)

        run_ranks(1, check)
        with self.assertRaises(onebit.InvalidArgument):
            onebit.Communicator.init_all(0)
        with self.assertRaisesRegex(onebit.InvalidArgument, "1 devices for 2 ranks"):
            onebit.Communicator.init_all(2, devices=[0])

    def test_invalid_usage(self):
        def check(comm):
            with onebit.Compressor(comm, 1000) as compressor:
                comm.all_reduce(ones.copy(), op="avg", compressor=compressor)
                with self.assertRaisesRegex(onebit.InvalidUsage, "used with another op"):
                    comm.all_reduce(ones.copy(), op="sum", compressor=compressor)
            with self.assertRaisesRegex(onebit.InvalidUsage, "the Compressor was closed"):
                compressor.stats()

        run_ranks(2, check)

    def test_mismatch_puts_the_communicator_out_of_use(self):
        def differ(comm):
            self.assertIsNone(comm.failure)
            try:
                comm.all_reduce(numpy.ones(10 + comm.rank, "f4"))
            finally:
                self.assertIsInstance(comm.failure, onebit.Error)

        for error in errors_of_ranks(2, differ):
            self.assertIsInstance(error, onebit.Mismatch)
            self.assertRegex(error.text, "10.*11|11.*10")

    def test_damaged_and_foreign_states(self):
        def check(comm):
            with onebit.Compressor(comm, 1000) as compressor, onebit.Compressor(
                comm, 1000, codec="fp4"
            ) as other:
                state = bytearray(compressor.export_state())
                with self.assertRaisesRegex(onebit.Mismatch, "codec"):
                    other.import_state(state)
                with self.assertRaisesRegex(onebit.InvalidArgument, "not a onebit state"):
                    compressor.import_state(b"x" * 100)
                state[-1] ^= 1
                with self.assertRaises(onebit.Corrupt):
                    compressor.import_state(state)

        run_ranks(1, check)

    def test_detached(self):
        comm = onebit.Communicator.init_all(1)[0]
        compressor = onebit.Compressor(comm, 1000)
        comm.close()
        with self.assertRaises(onebit.Detached):
            compressor.export_state("global")
        self.assertEqual(compressor.stats().is_detached, 1)

    def test_abort_ends_a_call_that_waits(self):
        comms = onebit.Communicator.init_all(2)
        errors = []

        def wait():
            try:
                comms[0].barrier()
            except onebit.Error as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        comms[0].abort()
        waiting.join()
        self.assertIsInstance(errors[0], onebit.Aborted)
        self.assertIsInstance(comms[0].failure, onebit.Aborted)

    def test_a_rank_that_leaves_is_a_remote_error(self):
        def leave(comm):
            if comm.rank == 1:
                comm.close()
            else:
                comm.barrier()

        error, none = errors_of_ranks(2, leave)
        self.assertIsInstance(error, onebit.RemoteError)
        self.assertIn("rank 1", error.text)
        self.assertIsNone(none)

    def test_timeout_and_system_error_of_joins(self):
        os.environ.update(RANK="1", WORLD_SIZE="2", ONEBIT_RENDEZVOUS="/nonexistent/file")
        config = onebit.Config(connect_timeout_ms=50)
        with self.assertRaisesRegex(
            onebit.Timeout, "rank 1 of 2: not joined within.*rendezvous file"
        ):
            onebit.init(config)
        os.environ.update(RANK="0")
        with self.assertRaisesRegex(
            onebit.SystemError, "rendezvous file .* cannot be made: No such file"
        ):
            onebit.init(config)
        os.environ.pop("RANK")
        with self.assertRaisesRegex(onebit.InvalidUsage, "RANK"):
            onebit.init(config)

    def test_a_wrong_secret_is_not_authenticated(self):
        unique_id = onebit.unique_id()
        damaged = bytearray(unique_id)
        config = onebit.Config(connect_timeout_ms=20000)
        results = []

        def join(identity, rank):
            try:
                results.append(onebit.Communicator.from_unique_id(bytes(identity), 2, rank, config))
            except onebit.Error as error:
                results.append(error)

        damaged[SECRET_BYTE] ^= 1
        join(damaged, 1)
        self.assertIsInstance(results.pop(), onebit.NotAuthenticated)
        with self.assertRaisesRegex(
            onebit.InvalidArgument, "has 3 bytes, but those of onebit.unique_id have 128"
        ):
            onebit.Communicator.from_unique_id(b"abc", 2, 0)

    def test_out_of_memory(self):
        def check(comm):
            with self.assertRaises(onebit.OutOfMemory):
                onebit.Compressor(comm, 1 << 50)

        run_ranks(1, check)


SECRET_BYTE = 8  # of the id: its first 8 say what it is

if __name__ == "__main__":
    unittest.main()
