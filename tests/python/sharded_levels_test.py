# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""ShardedOnebitAdam on ranks that are threads, of which two share a host."""

import copy
import os
import unittest

os.environ["ONEBIT_HOST_RANKS"] = "2"  # the library reads it once

import needs_torch  # pylint: disable=unused-import
import torch

from onebit.torch.optim import ShardedOnebitAdam
from rank_threads_case import run_ranks
from sharded_adam_test import joined, make_step, parameters

RANKS = 4
SHAPES = [(50021,)]  # parts of 64 KiB and more pass inside of hosts


class ShardedLevelsTest(unittest.TestCase):
    def test_hosts_send_a_tensor_once_and_share_out_residuals(self):
        def train(comm):
            self.assertEqual(comm.stats().hosts, 2)
            given = parameters(shapes=SHAPES)
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
            for step in range(5):
                make_step(optimizer, given, comm.rank, step)
            sent, network = comm.stats().bytes_sent, comm.stats().network_bytes
            make_step(optimizer, given, comm.rank, 5)
            self.assertEqual(comm.stats().bytes_sent - sent, optimizer.last_step.bytes_sent)
            return joined(given), comm.stats().network_bytes - network, optimizer.stats().state_bytes

        runs = run_ranks(RANKS, train)
        self.assertTrue(all(torch.equal(runs[0][0], run[0]) for run in runs))
        p = -(-SHAPES[0][0] // RANKS)
        # In one level each rank sends signs of two parts, and codes of its own twice, to the other host.
        flat = RANKS * 2 * (p / 8 + p / 2)
        between = sum(run[1] for run in runs)
        self.assertLess(between, 0.6 * flat)
        self.assertGreater(between, 0.4 * flat)
        # Two generations of 4 bytes for each element of all parts, half of which are the neighbour's.
        whole = 16 * p + RANKS * p * (4 + 4 + 4 + 8 + 2)
        self.assertEqual([run[2] for run in runs], [whole - RANKS * p * 4] * RANKS)

    def test_states(self):
        """The state of a rank continues bit for bit on the same hosts, that of all ranks on others."""

        def train(comm):
            given, again = parameters(shapes=SHAPES), parameters(shapes=SHAPES)
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
            for step in range(6):
                make_step(optimizer, given, comm.rank, step)
            other = ShardedOnebitAdam(again, 1.0, freeze_step=2, communicator=comm)
            other.load_state_dict(copy.deepcopy(optimizer.state_dict("rank")))
            whole = optimizer.state_dict()
            for step in range(6, 10):
                make_step(optimizer, given, comm.rank, step)
                make_step(other, again, comm.rank, step)
                self.assertTrue(torch.equal(joined(given), joined(again)))
            return whole

        states = run_ranks(RANKS, train)
        residual = states[0]["state"][0]["residual"]
        for state in states[1:]:
            self.assertTrue(torch.equal(residual, state["state"][0]["residual"]))
        self.assertGreater(float(residual.abs().max()), 0)

        def resume(comm):  # two hosts, of two ranks and one
            given = parameters(shapes=SHAPES)
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
            optimizer.load_state_dict(states[0])
            self.assertTrue(torch.equal(optimizer.state_dict()["state"][0]["residual"], residual))
            make_step(optimizer, given, comm.rank, 6)
            return joined(given)

        runs = run_ranks(3, resume)
        self.assertTrue(torch.equal(runs[0], runs[1]))
        self.assertTrue(torch.equal(runs[0], runs[2]))


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # stages are short here
