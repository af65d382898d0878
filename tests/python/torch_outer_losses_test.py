# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Outer optimizers that lose a rank or get a new one, on ranks that are threads: whatever the others have
applied, received or submitted by then, they end in one state."""

import concurrent.futures
import threading
import unittest

import onebit
from diloco_reference import EVERY
from diloco_trainer import Trainer
from needs_torch import torch
from rank_threads_case import run_ranks

RANKS = 4
LOST = RANKS - 1
# Fragment 0 is submitted after steps 3, 9, ... and fragment 1 after 6, 12, ...; both are applied two later.
OPTIONS = {"fragments": 2, "overlap": 2}
CODECS = (
    {"codec": None},
    {"codec": "fp4"},
    {"codec": "fp4", "mode": "ef"},
    {"codec": "sign"},
    {"codec": "topk", "compressor": {"k": 80, "block": 320, "ef_decay": 0.95}},
)


class Meeting(threading.Barrier):
    """A place where ranks meet, because the first that shrinks ends calls of the others."""

    def __init__(self):
        super().__init__(RANKS, timeout=60)

    def after(self, trainer, steps):
        """Trains until this rank has received what is in flight, and so has every other."""
        trainer.steps(steps)
        trainer.outer.report()
        self.wait()
        return trainer


def flights_of(trainer):
    """Returns for each fragment the step after which what is in flight was submitted, and None without a flight."""
    flights = [each.get("flight") for each in trainer.outer.state_dict("rank")["fragments"]]
    return [None if each is None else each["step"] for each in flights]


class OuterLossesTest(unittest.TestCase):
    def assert_equal_on_ranks(self, found):
        for each in found[1:]:
            self.assertEqual(len(each), len(found[0]))
            for one, other in zip(each, found[0]):
                self.assertTrue(torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other)

    def survivors_of(self, before, options):
        """Lets ranks do something without the last one, which leaves, and go on for two rounds."""

        meeting = Meeting()

        def train(comm):
            trainer = meeting.after(Trainer(comm, **OPTIONS, **options), 4)
            if comm.rank == LOST:
                return []
            before(comm.rank, trainer)
            trainer.outer.shrink([LOST])
            self.assertEqual(trainer.outer.communicator.size, LOST)
            found = [trainer.outer.steps, trainer.global_x, *flights_of(trainer)]
            trainer.steps(2 * EVERY)
            found += [trainer.outer.steps, trainer.global_x, trainer.outer.report().rounds]
            trainer.outer.close()
            return found

        found = run_ranks(RANKS, train)[:LOST]
        self.assert_equal_on_ranks(found)
        return found[0]

    def test_what_some_ranks_have_applied_all_apply(self):
        for options in CODECS:

            def expected(comm, options=options):
                return Trainer(comm, **OPTIONS, **options).steps(5).global_x

            def ahead(rank, trainer):
                if rank == 0:
                    trainer.steps(1)  # which only applies

            def behind(comm, options=options, meeting=Meeting()):
                trainer = meeting.after(Trainer(comm, **OPTIONS, **options), 4)
                if comm.rank != LOST:
                    ahead(comm.rank, trainer)
                    before = trainer.x
                    trainer.outer.shrink([LOST])
                    moved = (before + trainer.global_x) / 2
                    is_merged = torch.allclose(trainer.x[:16], moved[:16])
                    self.assertEqual(is_merged, comm.rank != 0)  # which has merged before
                    self.assertTrue(torch.equal(trainer.x[16:], before[16:]))

            run_ranks(RANKS, behind)
            whole = run_ranks(RANKS, expected)[0]
            steps, x, *flights = self.survivors_of(ahead, options)[:4]
            self.assertEqual(steps, 5)
            self.assertTrue(torch.equal(x, whole))
            self.assertEqual(flights, [None, None])

    def test_what_all_ranks_have_received_stays(self):
        for options in CODECS:

            def expected(comm, options=options):
                return Trainer(comm, **OPTIONS, **options).steps(5).global_x

            def shrunk(comm, options=options, meeting=Meeting()):
                trainer = meeting.after(Trainer(comm, **OPTIONS, **options), 4)
                if comm.rank == LOST:
                    return None
                self.assertEqual(flights_of(trainer), [3, None])
                trainer.outer.shrink([LOST])
                return trainer.steps(1).global_x

            whole = run_ranks(RANKS, expected)[0]
            for x in run_ranks(RANKS, shrunk)[:LOST]:
                self.assertTrue(torch.equal(x, whole))

    def test_what_no_rank_has_received_is_submitted_again(self):
        """From the parameters of that step, by the ranks that remain."""
        snapshots = {}

        def submit(rank, trainer):
            trainer.steps(1)
            trainer.set_gradients()
            trainer.outer.step()  # the last rank does not come
            self.assertEqual(trainer.outer.steps, 6)
            snapshots[rank] = trainer.x[16:]
            # As a call that fails may leave it.
            trainer.outer._fragments[1].flight.average.fill_(float("nan"))

        meeting = Meeting()

        def applied(comm):
            trainer = meeting.after(Trainer(comm, **OPTIONS, codec=None), 4)
            if comm.rank == LOST:
                return None
            submit(comm.rank, trainer)
            before = trainer.global_x
            trainer.outer.shrink([LOST])
            self.assertEqual(flights_of(trainer), [None, 6])
            self.assertTrue(torch.equal(trainer.global_x, before))  # not yet
            after = trainer.steps(2).global_x
            self.assertTrue(torch.equal(after[:16], before[:16]))
            return before[16:], after[16:]

        found = run_ranks(RANKS, applied)[:LOST]
        for before, after in found:
            average = sum(before - snapshots[rank] for rank in range(LOST)) / LOST
            torch.testing.assert_close(after, before - 0.7 * 1.9 * average)
            self.assertTrue(torch.equal(after, found[0][1]))
        for options in CODECS:
            self.survivors_of(submit, options)

    def test_what_one_rank_has_received_it_passes_on(self):
        def receive(rank, trainer):
            if rank != 1:  # as if the call had failed here
                flight = trainer.outer._fragments[0].flight
                flight.average.fill_(float("nan"))
                flight.has_arrived = False

        def expected(comm):
            return Trainer(comm, **OPTIONS, codec="fp4").steps(5).global_x

        meeting = Meeting()

        def shrunk(comm):
            trainer = meeting.after(Trainer(comm, **OPTIONS, codec="fp4"), 4)
            if comm.rank == LOST:
                return None
            receive(comm.rank, trainer)
            trainer.outer.shrink([LOST])
            return trainer.steps(1).global_x

        whole = run_ranks(RANKS, expected)[0]
        for x in run_ranks(RANKS, shrunk)[:LOST]:
            self.assertTrue(torch.equal(x, whole))

    def test_ranks_that_are_behind_submit_what_they_have_done(self):
        def further(rank, trainer):
            if rank == 0:
                trainer.steps(2)

        for options in CODECS:
            steps, _, *flights = self.survivors_of(further, options)[:4]
            self.assertEqual(steps, 6)
            self.assertEqual(flights, [None, 6])

    def test_an_error_of_a_step_leaves_the_old_state(self):
        meeting = Meeting()

        def train(comm):
            trainer = meeting.after(Trainer(comm, codec="fp4", mode="ef"), EVERY + 2)
            before = trainer.global_x
            if comm.rank == LOST:
                comm.abort()
                return None
            with self.assertRaises(onebit.Error):
                trainer.steps(EVERY)
            self.assertTrue(torch.equal(trainer.global_x, before))
            with self.assertRaises(onebit.Error):
                trainer.outer.flush()
            self.assertTrue(torch.equal(trainer.global_x, before))
            trainer.outer.shrink([LOST])
            self.assertFalse(torch.equal(trainer.global_x, before))  # what was due has been done
            self.assertEqual(trainer.outer.steps, 2 * EVERY)
            self.assertEqual(trainer.outer.report().rounds, 2)  # once
            trainer.steps(EVERY)
            return trainer.global_x

        found = run_ranks(RANKS, train)[:LOST]
        self.assert_equal_on_ranks([[x] for x in found])

    def test_a_rank_that_joins_gets_everything(self):
        """It trains on as the one that it replaces would."""
        larger = onebit.Communicator.init_all(RANKS)
        for options in CODECS:

            def leave(comm, options=options, meeting=Meeting()):
                trainer = meeting.after(Trainer(comm, **OPTIONS, **options), 8)
                if comm.rank == LOST:
                    return None
                trainer.outer.shrink([LOST])
                return trainer.steps(2)

            trainers = run_ranks(RANKS, leave)
            trainers[LOST] = None

            def rejoin(comm, options=options, trainers=trainers):
                trainer = trainers[comm.rank]
                if trainer is None:
                    trainer = Trainer(comm, **OPTIONS, **options)
                    self.assertTrue(torch.equal(trainer.x, trainer.global_x))
                else:
                    with self.assertRaisesRegex(onebit.InvalidUsage, "call flush"):
                        trainer.outer.join(comm)  # nothing was sent
                    trainer.outer.flush()
                    trainer.outer.join(comm)
                state = trainer.outer.state_dict("rank")
                found = [state["steps"]]
                for each in state["fragments"]:
                    found += [each[key] for key in ("values", "momentum", "rounds", "submitted")]
                found.append(trainer.steps(2 * EVERY).global_x)
                trainer.outer.close()
                return found

            found = run_on(larger, rejoin)
            self.assert_equal_on_ranks(found)
            self.assertEqual(found[0][0], 10)
        for comm in larger:
            comm.close()


def run_on(comms, function):
    """Returns the results of `function` on the ranks of communicators that stay open."""
    with concurrent.futures.ThreadPoolExecutor(len(comms)) as pool:
        return list(pool.map(function, comms))


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    torch.set_num_threads(1)
    unittest.main()
