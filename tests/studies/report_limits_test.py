# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Limits and break-evens of perf/report against figures worked out by hand."""

import math
import unittest

import report_input
from reporting import limits
from reporting.break_even import Outcome, Point, break_even
from reporting.limits import Kind
from reporting.rank_layout import Layout
from reporting.systems import ONEBIT_EF, SYSTEMS

MIB = 1 << 20
FOUR_HOSTS = Layout(1, 4)


class LimitsTest(unittest.TestCase):
    def test_64_mib_on_4_hosts_at_1_gbit(self):
        # 2 * 3/4 * 64 MiB = 100 663 296 bytes are 805.3 ms, and 842.0 ms in frames of 1514 for 1448.
        self.assertAlmostEqual(limits.wire_us(Kind.DENSE, 64 * MIB, 4, 1e9) / 1e3, 842.0, delta=0.05)
        # 2 * 3/4 * 16 Mi elements of 1 + 32/4096 bits are 25 362 432 bits, 25.36 ms, 26.52 ms in frames.
        self.assertAlmostEqual(limits.wire_us(Kind.ONE_BIT, 64 * MIB, 4, 1e9) / 1e3, 26.52, delta=0.005)
        # With 4 + 16/128 bits they are 103 809 024 bits, 108.5 ms in frames.
        self.assertAlmostEqual(limits.wire_us(Kind.FOUR_BITS, 64 * MIB, 4, 1e9) / 1e3, 108.5, delta=0.05)

    def test_time_on_the_wire_goes_with_size_and_rate(self):
        one = limits.wire_us(Kind.DENSE, MIB, 2, 1e9)
        self.assertAlmostEqual(one, 8 * MIB * 1514 / 1448 / 1e3)  # two ranks send a tensor each
        self.assertAlmostEqual(limits.wire_us(Kind.DENSE, 3 * MIB, 2, 2e9), 1.5 * one)

    def test_memory_of_ranks_that_share_cores(self):
        # 4 ranks read and write 64 MiB each, on 2 cores that move 40 GB/s each.
        self.assertAlmostEqual(limits.memory_us(Kind.DENSE, 64 * MIB, FOUR_HOSTS, 2, 40.0),
                               4 * 2 * 64 * MIB / 80e3)
        # One bit: input, residual twice, output, and the server's residual twice for a quarter.
        self.assertAlmostEqual(limits.memory_us(Kind.ONE_BIT, 64 * MIB, FOUR_HOSTS, 2, 40.0),
                               4 * 4.5 * 64 * MIB / 80e3)
        # More cores than ranks do not help.
        self.assertEqual(limits.memory_us(Kind.DENSE, MIB, Layout(1, 2), 64, 10.0),
                         limits.memory_us(Kind.DENSE, MIB, Layout(1, 2), 2, 10.0))

    def test_ranks_of_a_host_share_its_link_and_its_residual(self):
        self.assertEqual(limits.two_levels_on_link(4), 1.5)
        self.assertEqual(limits.ring_on_link(16), 1.875)
        self.assertEqual(limits.flat_on_link(4, 4), 6)
        for of_one in (limits.ring_on_link(4), limits.flat_on_link(4, 1)):
            self.assertEqual(of_one, limits.two_levels_on_link(4))
        shared = Layout(4, 4)
        one, several = (limits.limit(Kind.DENSE, MIB, layout, bits_per_second=1e6, cores=2, copy_gbps=40.0,
                                     cache_bytes=None) for layout in (FOUR_HOSTS, shared))
        self.assertEqual(several.us, one.us)
        # 16 ranks read and write; one bit: input, a quarter of the residual twice, output, and the server's residual
        # twice for a sixteenth.
        self.assertAlmostEqual(limits.memory_us(Kind.DENSE, 64 * MIB, shared, 2, 40.0), 16 * 2 * 64 * MIB / 80e3)
        self.assertAlmostEqual(limits.memory_us(Kind.ONE_BIT, 64 * MIB, shared, 2, 40.0),
                               16 * 2.625 * 64 * MIB / 80e3)
        in_cache = limits.limit(Kind.DENSE, MIB, shared, bits_per_second=None, cores=2, copy_gbps=40.0,
                                cache_bytes=32 * MIB)
        self.assertIsNone(in_cache.us)

    def limit(self, kind, size, bits_per_second, cache_bytes=None):
        return limits.limit(kind, size, FOUR_HOSTS, bits_per_second=bits_per_second, cores=2, copy_gbps=40.0,
                            cache_bytes=cache_bytes)

    def test_the_larger_of_both_binds(self):
        slow, fast = self.limit(Kind.ONE_BIT, 64 * MIB, 1e9), self.limit(Kind.ONE_BIT, 64 * MIB, 1e10)
        self.assertEqual((slow.cause, fast.cause), ("wire", "memory"))
        self.assertEqual(slow.us, slow.wire_us)
        self.assertEqual(fast.us, fast.memory_us)
        self.assertGreater(fast.us, fast.wire_us)

    def test_without_a_wire_or_beyond_memory(self):
        self.assertEqual(self.limit(Kind.DENSE, MIB, None).cause, "memory")
        in_cache = self.limit(Kind.DENSE, MIB, None, cache_bytes=8 * MIB)  # exactly fits
        self.assertEqual((in_cache.us, in_cache.cause), (None, ""))
        self.assertEqual(self.limit(Kind.DENSE, MIB, None, cache_bytes=8 * MIB - 1).cause, "memory")
        self.assertEqual(self.limit(Kind.DENSE, MIB, 1e9, cache_bytes=8 * MIB).cause, "wire")

    def test_every_system_has_a_limit_of_its_kind(self):
        kinds = {"onebit-ef": Kind.ONE_BIT, "multipass": Kind.ONE_BIT, "onebit-fp4": Kind.FOUR_BITS}
        for system in SYSTEMS:
            self.assertIs(system.kind, kinds.get(system.name, Kind.DENSE), system.name)

    def test_share_of_a_row(self):
        group = report_input.group_of(report_input.figures_of(report_input.document()), "lab", 10**9, 4)
        self.assertAlmostEqual(group.share(ONEBIT_EF, 64 * MIB), 26.518 / 31.0, delta=1e-4)


def points(*ratios):
    """Sizes 1, 4, 16, ... KiB; each ratio is the time of one bit over that of the best dense."""
    return [Point(1024 * 4**index, 100.0 * ratio, 100.0) for index, ratio in enumerate(ratios)]


class BreakEvenTest(unittest.TestCase):
    def test_crosses_between_two_sizes(self):
        result = break_even(points(2.0, 0.5, 0.1))
        self.assertIs(result.outcome, Outcome.FROM)
        self.assertAlmostEqual(result.size, 2048.0)  # halfway between 1 and 4 KiB on a logarithmic axis
        self.assertEqual((result.last_loss, result.first_win), (1024, 4096))

    def test_lies_near_the_closer_ratio(self):
        result = break_even(points(1.1, 0.1))
        part = math.log(1.1) / (math.log(1.1) - math.log(0.1))
        self.assertAlmostEqual(result.size, 1024 * 4**part)
        self.assertLess(result.size, 1100)

    def test_a_tie_is_no_win(self):
        result = break_even(points(1.0, 0.5))
        self.assertIs(result.outcome, Outcome.FROM)
        self.assertAlmostEqual(result.size, 1024.0)

    def test_always_and_never(self):
        self.assertIs(break_even(points(0.9, 0.5)).outcome, Outcome.ALWAYS)
        never = break_even(points(2.0, 1.5))
        self.assertIs(never.outcome, Outcome.NEVER)
        self.assertEqual((never.largest, never.wins_below), (4096, ()))

    def test_wins_that_do_not_last_are_no_break_even(self):
        result = break_even(points(2.0, 0.5, 0.8, 1.2))
        self.assertIs(result.outcome, Outcome.NEVER)
        self.assertEqual(result.wins_below, (4096, 16384))
        result = break_even(points(0.5, 2.0, 0.5))
        self.assertIs(result.outcome, Outcome.FROM)
        self.assertEqual(result.first_win, 16384)

    def test_no_points(self):
        self.assertIs(break_even([]).outcome, Outcome.UNKNOWN)

    def test_order_of_points_does_not_matter(self):
        self.assertEqual(break_even(points(2.0, 0.5)[::-1]), break_even(points(2.0, 0.5)))

    def test_of_groups(self):
        figures = report_input.figures_of(report_input.document())
        # 600 us against 300 at 16 KiB, 700 against 3500 at 256 KiB.
        slow = report_input.group_of(figures, "lab", 10**9, 4).break_even()
        self.assertAlmostEqual(slow.size, 16384 * 16 ** (math.log(2) / math.log(10)), delta=1)
        # 1200 us against 600 at 256 KiB, half of the best at 4 MiB.
        fast = report_input.group_of(figures, "lab", 10**10, 4).break_even()
        self.assertAlmostEqual(fast.size, MIB, delta=1)
        self.assertIs(report_input.group_of(figures, "shm", None, 4).break_even().outcome, Outcome.NEVER)


if __name__ == "__main__":
    unittest.main()
