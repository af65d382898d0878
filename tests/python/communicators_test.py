# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives, groups and compressors on ranks that are threads, compared with NumPy."""

import array
import gc
import unittest
import weakref

import numpy

import onebit
from rank_threads_case import errors_of_ranks, run_ranks

RANKS = 3


def tensor(rank: int, count: int = 6000, dtype: str = "f4") -> numpy.ndarray:
    return numpy.random.default_rng(rank).integers(-100, 100, count).astype(dtype)


def of_all(count: int = 6000, dtype: str = "f4") -> numpy.ndarray:
    return numpy.stack([tensor(rank, count, dtype) for rank in range(RANKS)])


class CollectivesTest(unittest.TestCase):
    def test_all_reduce(self):
        expected = {
            "sum": of_all().sum(0),
            "avg": of_all().sum(0) / numpy.float32(RANKS),
            "max": of_all().max(0),
            "min": of_all().min(0),
        }

        def check(comm):
            for op, result in expected.items():
                ours, out = tensor(comm.rank), numpy.empty(6000, "f4")
                comm.all_reduce(ours, out=out, op=op)
                numpy.testing.assert_array_equal(out, result)
                numpy.testing.assert_array_equal(ours, tensor(comm.rank))
                self.assertIsNone(comm.all_reduce(ours, op=onebit.RedOp.of(op)))
                numpy.testing.assert_array_equal(ours, result)

        run_ranks(RANKS, check)

    def test_every_element_type(self):
        def check(comm):
            for dtype in ("u1", "i4", "i8", "f2", "f4", "f8"):
                ours = (tensor(comm.rank, 100) % 10).astype(dtype)
                expected = sum((tensor(rank, 100) % 10).astype(dtype) for rank in range(RANKS))
                comm.all_reduce(ours)
                numpy.testing.assert_array_equal(ours, expected, dtype)

        run_ranks(RANKS, check)

    def test_without_numpy(self):
        def check(comm):
            ours = array.array("f", [comm.rank, 1])
            comm.all_reduce(ours)
            self.assertEqual(list(ours), [3, 3])

        run_ranks(RANKS, check)

    def test_reduce_scatter_and_all_gather(self):
        def check(comm):
            mine, total = numpy.empty(2000, "f4"), of_all().sum(0)
            part = slice(comm.rank * 2000, (comm.rank + 1) * 2000)
            comm.reduce_scatter(tensor(comm.rank), out=mine)
            numpy.testing.assert_array_equal(mine, total[part])
            in_place = tensor(comm.rank)
            comm.reduce_scatter(in_place)
            numpy.testing.assert_array_equal(in_place[part], total[part])
            gathered = numpy.empty((RANKS, 2000), "f4")
            comm.all_gather(mine, out=gathered)
            numpy.testing.assert_array_equal(gathered.reshape(-1), total)
            in_place[:] = 0
            in_place[part] = mine
            comm.all_gather(in_place)
            numpy.testing.assert_array_equal(in_place, total)

        run_ranks(RANKS, check)

    def test_all_to_all(self):
        def check(comm):
            out = numpy.empty((RANKS, 2000), "f4")
            comm.all_to_all(tensor(comm.rank), out)
            for rank in range(RANKS):
                numpy.testing.assert_array_equal(
                    out[rank], tensor(rank).reshape(RANKS, -1)[comm.rank]
                )

        run_ranks(RANKS, check)

    def test_all_to_all_v(self):
        # Rank r sends r + j + 1 elements to rank j.
        def check(comm):
            counts = [comm.rank + rank + 1 for rank in range(RANKS)]
            starts = [10 * rank for rank in range(RANKS)]
            out = numpy.zeros(sum(counts), "f4")
            comm.all_to_all_v(tensor(comm.rank), counts, out, counts, send_offsets=starts)
            expected = numpy.concatenate(
                [
                    tensor(rank)[10 * comm.rank : 10 * comm.rank + comm.rank + rank + 1]
                    for rank in range(RANKS)
                ]
            )
            numpy.testing.assert_array_equal(out, expected)

        run_ranks(RANKS, check)

    def test_broadcast_send_and_recv(self):
        def check(comm):
            ours = tensor(comm.rank)
            comm.broadcast(ours, 1)
            numpy.testing.assert_array_equal(ours, tensor(1))
            received = numpy.empty(6000, "f4")
            with onebit.group():
                comm.send(tensor(comm.rank), (comm.rank + 1) % RANKS)
                comm.recv(received, (comm.rank - 1) % RANKS)
            numpy.testing.assert_array_equal(received, tensor((comm.rank - 1) % RANKS))
            comm.barrier()

        run_ranks(RANKS, check)

    def test_split(self):
        def check(comm):
            pair = comm.split(0 if comm.rank != 1 else None, key=-comm.rank)
            if comm.rank == 1:
                self.assertIsNone(pair)
                return
            with pair:
                self.assertEqual((pair.size, pair.rank), (2, 0 if comm.rank == 2 else 1))
                ours = numpy.full(3, comm.rank, "f4")
                pair.all_reduce(ours)
                self.assertEqual(list(ours), [2, 2, 2])

        run_ranks(RANKS, check)

    def test_leaving_a_block_finalizes_and_closes(self):
        def check(comm):
            with comm as same:
                self.assertIs(same, comm)
            self.assertTrue(comm.is_closed)
            self.assertIn("closed", repr(comm))
            with self.assertRaisesRegex(onebit.InvalidUsage, "the Communicator was closed"):
                comm.barrier()
            comm.close()

        run_ranks(RANKS, check)

    def test_an_exception_in_a_block_comes_through(self):
        def check(comm):
            with comm:
                raise KeyError(comm.rank)

        self.assertEqual(
            [error.args for error in errors_of_ranks(RANKS, check)], [(0,), (1,), (2,)]
        )


class CompressorsTest(unittest.TestCase):
    def test_calls_telescope_and_count_their_bytes(self):
        """With error feedback the sum of results and what is still owed is the sum of means."""

        def check(comm):
            with onebit.Compressor(comm, 6000, codec="fp4", block=64) as compressor:
                total, before = numpy.zeros(6000), comm.stats().bytes_sent
                for _ in range(4):
                    ours = tensor(comm.rank)
                    comm.all_reduce(ours, op="avg", compressor=compressor)
                    total += ours
                self.assertEqual(
                    comm.stats().bytes_sent - before, 4 * compressor.stats().wire_bytes
                )
                self.assertEqual(compressor.stats().epoch, 4)
                ours = tensor(comm.rank)
                compressor.prime(ours, op="avg")
                total += ours
            numpy.testing.assert_allclose(total, 5 * of_all().mean(0), atol=1e-3)
            return ours.tobytes()

        self.assertEqual(len(set(run_ranks(RANKS, check))), 1)

    def test_each_collective(self):
        # Elements of a call that are 1 or -1 lose nothing by their signs.
        def check(comm):
            signs = {
                name: numpy.sign(tensor(7, 192) + 0.5).astype("f4") for name in ("all", "part")
            }
            signs["part"] = signs["part"][:64].copy()

            def compressor(collective, count=64, **options):
                return onebit.Compressor(
                    comm, count, collective=collective, mode="plain", block=64, **options
                )

            ours = signs["all"].copy()
            with compressor("all_reduce", 192) as made:
                comm.all_reduce(ours, op="avg", compressor=made)
            numpy.testing.assert_array_equal(ours, signs["all"])
            mine = numpy.empty(64, "f4")
            with compressor("reduce_scatter") as made:
                comm.reduce_scatter(signs["all"], out=mine, op="avg", compressor=made)
            numpy.testing.assert_array_equal(mine, signs["all"].reshape(RANKS, -1)[comm.rank])
            gathered = numpy.empty(192, "f4")
            with compressor("all_gather") as made:
                comm.all_gather(mine, out=gathered, compressor=made)
            numpy.testing.assert_array_equal(gathered, signs["all"])
            with compressor("all_to_all") as made:
                comm.all_to_all(signs["all"], gathered, compressor=made)
            numpy.testing.assert_array_equal(
                gathered.reshape(RANKS, -1)[0], signs["all"].reshape(RANKS, -1)[comm.rank]
            )
            with compressor("all_to_allv", 0) as made:
                comm.all_to_all_v(
                    signs["all"], [64] * RANKS, gathered, [64] * RANKS, compressor=made
                )
            numpy.testing.assert_array_equal(
                gathered.reshape(RANKS, -1)[0], signs["all"].reshape(RANKS, -1)[comm.rank]
            )
            received = numpy.empty(64, "f4")
            with compressor("send_recv") as made:
                if comm.rank == 0:
                    comm.send(signs["part"], 1, compressor=made)
                elif comm.rank == 1:
                    comm.recv(received, 0, compressor=made)
                    numpy.testing.assert_array_equal(received, signs["part"])

        run_ranks(RANKS, check)

    def test_masks(self):
        taking_part = tensor(5) > 0

        def check(comm):
            bits = numpy.packbits(taking_part, bitorder="little")
            with onebit.Compressor(comm, 6000, mask=bits) as compressor:
                ours = tensor(comm.rank)
                comm.all_reduce(ours, op="avg", compressor=compressor)
                self.assertFalse(ours[~taking_part].any())
                self.assertTrue(ours[taking_part].all())
                compressor.set_mask(None)
                ours = tensor(comm.rank)
                comm.all_reduce(ours, op="avg", compressor=compressor)
                self.assertTrue(ours.all())

        run_ranks(RANKS, check)

    def test_weights(self):
        def check(comm):
            with onebit.Compressor(comm, 6000, codec="int8") as compressor:
                compressor.set_weight(1 if comm.rank == 2 else 0)
                ours = tensor(comm.rank)
                comm.all_reduce(ours, op="avg", compressor=compressor)
                numpy.testing.assert_allclose(ours, tensor(2), atol=2)

        run_ranks(RANKS, check)

    def test_states_continue_bit_for_bit(self):
        def check(comm):
            def step(compressor):
                ours = tensor(comm.rank)
                comm.all_reduce(ours, op="avg", compressor=compressor)
                return ours.tobytes()

            with onebit.Compressor(comm, 6000, codec="fp4") as compressor, onebit.Compressor(
                comm, 6000, codec="fp4"
            ) as other:
                first = step(compressor)
                state, of_all_ranks = compressor.export_state(), compressor.export_state("global")
                second = step(compressor)
                self.assertNotEqual(first, second)
                other.import_state(state)
                self.assertEqual(step(other), second)
                compressor.reset()
                self.assertEqual(step(compressor), first)
                compressor.import_state(memoryview(of_all_ranks))
                self.assertEqual(compressor.stats().epoch, 1)
                return of_all_ranks

        self.assertEqual(len(set(run_ranks(RANKS, check))), 1)

    def test_shrink_and_rebind(self):
        def check(comm):
            compressor = onebit.Compressor(comm, 6000)
            comm.all_reduce(tensor(comm.rank), op="avg", compressor=compressor)
            if comm.rank == 1:
                return
            smaller = comm.shrink([1])
            self.assertEqual((smaller.size, smaller.rank), (2, comm.rank // 2))
            self.assertIn(compressor.rebind(smaller), (0, 1))
            self.assertIs(compressor.communicator, smaller)
            ours = tensor(comm.rank)
            smaller.all_reduce(ours, op="avg", compressor=compressor)
            smaller.finalize()

        run_ranks(RANKS, check)

    def test_a_compressor_keeps_its_communicator(self):
        comm = onebit.Communicator.init_all(1)[0]
        compressor, gone = onebit.Compressor(comm, 10), weakref.ref(comm)
        del comm
        gc.collect()
        self.assertIsNotNone(gone())
        compressor.communicator.barrier()
        compressor.close()
        del compressor
        gc.collect()
        self.assertIsNone(gone())


class GroupsTest(unittest.TestCase):
    def test_results_are_those_of_single_calls_in_fewer_messages(self):
        def check(comm):
            results, messages = [], []
            for is_grouped in (False, True):
                compressors = [
                    onebit.Compressor(comm, 6000, codec=codec) for codec in ("sign", "fp4", "int8", "bf16")
                ]
                arrays, before = [
                    tensor(comm.rank + index) for index in range(4)
                ], comm.stats().messages_sent
                if is_grouped:
                    with onebit.group(), onebit.group():
                        for each, compressor in zip(arrays, compressors):
                            comm.all_reduce(each, op="avg", compressor=compressor)
                        numpy.testing.assert_array_equal(
                            arrays[0], tensor(comm.rank)
                        )  # not made yet
                else:
                    for each, compressor in zip(arrays, compressors):
                        comm.all_reduce(each, op="avg", compressor=compressor)
                results.append([each.tobytes() for each in arrays])
                messages.append(comm.stats().messages_sent - before)
            self.assertEqual(results[0], results[1])
            self.assertLess(messages[1], messages[0])

        run_ranks(RANKS, check)

    def test_one_thread_makes_the_calls_of_all_ranks(self):
        comms = onebit.Communicator.init_all(RANKS)
        arrays = [tensor(rank) for rank in range(RANKS)]
        with onebit.group():
            for comm, each in zip(comms, arrays):
                comm.all_reduce(each)
        for each in arrays:
            numpy.testing.assert_array_equal(each, of_all().sum(0))

    def test_a_group_keeps_its_arrays(self):
        comms = onebit.Communicator.init_all(2)
        arrays = [numpy.ones(10, "f4") for _ in comms]
        gone = [weakref.ref(each) for each in arrays]
        with onebit.group():
            for comm in comms:
                comm.all_reduce(arrays.pop())
            gc.collect()
            self.assertTrue(all(each() is not None for each in gone))
        gc.collect()
        self.assertTrue(all(each() is None for each in gone))

    def test_an_exception_drops_the_calls(self):
        def check(comm):
            ours = tensor(comm.rank)
            with self.assertRaises(KeyError), onebit.group():
                comm.all_reduce(ours)
                raise KeyError
            numpy.testing.assert_array_equal(ours, tensor(comm.rank))
            with self.assertRaisesRegex(onebit.InvalidArgument, "root"), onebit.group():
                comm.all_reduce(ours)
                comm.broadcast(ours, RANKS)
            numpy.testing.assert_array_equal(ours, tensor(comm.rank))
            comm.all_reduce(ours)
            numpy.testing.assert_array_equal(ours, of_all().sum(0))

        run_ranks(RANKS, check)


if __name__ == "__main__":
    unittest.main()
