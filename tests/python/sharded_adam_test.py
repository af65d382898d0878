# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""ShardedOnebitAdam on ranks that are threads: its trajectories, AdamW in dense steps, priming, odd counts,
bytes, overflows, clipping, states and refusals."""

import copy
import math
import sys
import threading
import unittest
import warnings

try:
    import numpy
    import torch
except ImportError:
    sys.exit(77)  # skipped

import onebit
from onebit.torch.optim import OnebitAdam, ShardedOnebitAdam
from noisy_quadratic import SHAPES, gradient, make_step, parameters
from rank_threads_case import errors_of_ranks, run_ranks

RANKS = 2
FREEZE = 4

# A quadratic with gradients that repeat every 29 steps. The ends of its trajectories, in float64 and with
# scales of fp4 that are not rounded, are known: losses after steps 13, 20 and 40, and the largest lag.
TOY_STEPS, TOY_FREEZE, TOY_RATE, TOY_BETAS = 40, 12, 0.05, (0.9, 0.97)
TRAJECTORIES = [
    # gradients, parameters, offset of the noise
    (None, None, 0, (11.5745385117, 7.47898513029, 3.4524299699), 0.0),
    ("sign", None, 20, (11.5735415689, 7.63970425496, 3.48627318064), 0.0),
    ("sign", "sign", 26, (11.5941802264, 7.6426967873, 3.54388971734), 0.122922655829),
    ("sign", "fp4", 2, (11.5935304515, 7.67598842943, 3.53786921034), 0.0142421250883),
    ("fp4", "fp4", 10, (11.558245443, 7.48151889769, 3.47153546114), 0.0108194442477),
]


class Toy:
    """The quadratic of rank i of 2: sum of a (x - c_i)^2 / 2."""

    k = numpy.arange(16.0)
    a = 0.5 + 0.25 * (k % 5)
    start = ((5 * k + 1) % 11 - 5) / 2

    def __init__(self, offset):
        self._offset = offset

    def centre(self, rank):
        return ((7 * self.k + 11 * rank + 3) % 13 - 6) / 4

    def gradient(self, x, rank, step):
        noise = (31 * step + 17 * self.k + 13 * rank + self._offset) % 29 - 14
        return self.a * (x - self.centre(rank)) + noise / 64

    def loss(self, x):
        return sum((self.a * (x - self.centre(rank)) ** 2).sum() / 2 for rank in (0, 1)) / 2


def rounded_to_bf16(number):
    return float(torch.tensor(number, dtype=torch.float32).to(torch.bfloat16))


def decoded(values, codec, scale_of):
    """The values after a packet of a part, in float64."""
    if codec is None:
        return values
    if codec == "sign":
        return numpy.where(values >= 0, 1, -1) * math.sqrt((values**2).mean())
    scale = scale_of(abs(values).max() / 6)
    if scale == 0:
        return 0 * values
    levels = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nearest = abs(abs(values)[:, None] / scale - levels).argmin(axis=1)
    return numpy.sign(values) * levels[nearest] * scale


def simulated(gradients, parameters, offset, scale_of, has_units=False):
    """The sharded optimizer on the toy in float64: what ranks hold, losses after each step, the lag."""
    toy = Toy(offset)
    (beta1, beta2), x = TOY_BETAS, Toy.start.copy()
    held, m, v = x.copy(), numpy.zeros(16), numpy.zeros(16)
    residuals, losses, lag = [numpy.zeros(16), numpy.zeros(16)], [], 0.0
    units = numpy.ones(16)

    def sent(values, codec):
        return numpy.concatenate([decoded(part, codec, scale_of) for part in numpy.split(values, 2)])

    for step in range(1, TOY_STEPS + 1):
        own = [toy.gradient(held, rank, step) for rank in (0, 1)]
        is_dense = step <= TOY_FREEZE
        if not is_dense:
            if has_units:
                divisors = numpy.maximum(numpy.sqrt(v), 0.01 * math.sqrt(v.mean())) + 1e-8
                units = 2 ** -numpy.round(numpy.log2(divisors))
            owed = [one * units + residual for one, residual in zip(own, residuals)]
            own = [sent(each, gradients) for each in owed]
            residuals = [each - one for each, one in zip(owed, own)]
            own = [each / units for each in own]
        g = (own[0] + own[1]) / 2
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2 if is_dense else v
        x = x - TOY_RATE * m / (numpy.sqrt(v) + 1e-8)
        held = x.copy() if is_dense else held + sent(x - held, parameters)
        losses.append(toy.loss(held))
        lag = max(lag, abs(x - held).max())
    return held, losses, lag


def twin_runs(comm):
    """Two equal lists of parameters, each with its optimizer, whose second group never freezes."""
    given, twins = parameters(), parameters()
    runs = []
    for tensors in (given, twins):
        groups = [{"params": tensors[:2]}, {"params": tensors[2:], "non_freeze": True}]
        runs.append(ShardedOnebitAdam(groups, 0.01, freeze_step=FREEZE, communicator=comm))
    return (given, twins), runs


def joined(given):
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in given])


class ShardedAdamTest(unittest.TestCase):
    def assert_equal(self, found, expected):
        for one, other in zip(found, expected):
            self.assertTrue(torch.equal(one.detach(), other.detach()))

    def test_trajectories(self):
        """The known trajectories, and the library's, whose scales of fp4 are rounded to bf16."""
        for gradients, gather, offset, known, known_lag in TRAJECTORIES:
            with self.subTest(gradients=gradients, gather=gather):
                _, losses, lag = simulated(gradients, gather, offset, float)
                for step, loss in zip((13, 20, 40), known):
                    self.assertAlmostEqual(losses[step - 1], loss, places=8)
                self.assertAlmostEqual(lag, known_lag, places=8)
                if gather != "fp4":
                    self._compare(gradients, gather, offset, "fused")
        # With these no element comes near to where a code of fp4, or its scale, is another one.
        self._compare("sign", "fp4", 17, "fused")
        self._compare("fp4", "fp4", 18, "fused")
        self._compare("sign", "sign", 0, "element")
        self._compare("sign", "fp4", 19, "element")

    def _compare(self, gradients, gather, offset, scales):
        held, losses, lag = simulated(gradients, gather, offset, rounded_to_bf16, scales == "element")
        runs = self._toy_runs(gradients, gather, offset, scales)
        for found, found_losses, _ in runs:
            numpy.testing.assert_allclose(found, held, atol=1e-4, rtol=0)
            numpy.testing.assert_allclose(found_losses, losses, atol=1e-4, rtol=0)
        self.assertAlmostEqual(max(run[2] for run in runs), lag, places=4)

    def _toy_runs(self, gradients, gather, offset, scales):
        toy = Toy(offset)

        def run(comm):
            x = torch.nn.Parameter(torch.tensor(Toy.start, dtype=torch.float32))
            optimizer = ShardedOnebitAdam(
                [x], TOY_RATE, TOY_BETAS, freeze_step=TOY_FREEZE, codec=gradients, gather=gather, scales=scales,
                bias_correction=False, communicator=comm,
            )  # fmt: skip
            losses, lag = [], 0.0
            for step in range(1, TOY_STEPS + 1):
                values = toy.gradient(x.detach().double().numpy(), comm.rank, step)
                x.grad = torch.tensor(values, dtype=torch.float32)
                optimizer.step()
                losses.append(toy.loss(x.detach().double().numpy()))
                lag = max(lag, optimizer.stats().lag)
            return x.detach().double().numpy(), losses, lag

        runs = run_ranks(2, run)
        numpy.testing.assert_array_equal(runs[0][0], runs[1][0])
        return runs

    def test_dense_steps_are_those_of_adamw(self):
        def check(comm):
            given, expected = parameters(), parameters()
            runs = []
            for kind, tensors in ((ShardedOnebitAdam, given), (torch.optim.AdamW, expected)):
                options = {}
                if kind is ShardedOnebitAdam:
                    options = {"communicator": comm, "freeze_step": "never", "max_grad_norm": 2.0}
                groups = [{"params": tensors[:1], "lr": 0.1, "weight_decay": 0.2}, {"params": tensors[1:]}]
                optimizer = kind(groups, lr=0.02, weight_decay=0.01, **options)
                scheduler = torch.optim.lr_scheduler.LambdaLR(
                    optimizer, [lambda step: 1 / (1 + step), lambda step: float(step < 6)]
                )
                runs.append((optimizer, scheduler))
            for step in range(10):
                make_step(runs[0][0], given, comm.rank, step)
                for parameter in expected:
                    parameter.grad = sum(gradient(parameter, rank, step) for rank in range(3)) / 3
                norm = torch.nn.utils.clip_grad_norm_(expected, 2.0)
                runs[1][0].step()
                self.assertAlmostEqual(runs[0][0].last_step.grad_norm / float(norm), 1, places=4)
                for _, scheduler in runs:
                    scheduler.step()
            for one, other in zip(given, expected):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

        run_ranks(3, check)

    def test_priming_makes_all_ranks_hold_the_parameters(self):
        """Bit for bit: at the beginning of the compressed stage, and where the program writes to them."""

        def check(comm):
            given = parameters()
            # Parameters do not move, so that a step of rate 0 leaves what priming has made.
            optimizer = ShardedOnebitAdam(given, 0.05, freeze_step=FREEZE, communicator=comm)
            for step in range(FREEZE + 3):
                optimizer.param_groups[0]["lr"] = 0.05 if step != FREEZE else 0.0
                make_step(optimizer, given, comm.rank, step)
                lag = optimizer.stats().lag
                self.assertEqual(lag > 0, step > FREEZE)
                if step == FREEZE:
                    self.assertEqual(optimizer.last_step.stage, onebit.Stage.COMPRESSED)
            with torch.no_grad():
                given[0].fill_(0.5)
                given[1].data.mul_(2)
                given[2].clamp_(-0.5, 0.5)
            written, lag = joined(given), optimizer.stats().lag
            optimizer.param_groups[0]["lr"] = 0.0
            make_step(optimizer, given, comm.rank, step)
            whole = optimizer.state_dict()["state"]
            for _ in range(30):  # the difference that is left shrinks with each all-gather
                make_step(optimizer, given, comm.rank, step)
            self.assertLess(optimizer.stats().lag, 1e-6)
            masters = torch.cat([whole[k]["master"].reshape(-1) for k in range(3)])
            return written, joined(given), masters, lag

        (first, held, master, lag), (_, others, _, other_lag) = run_ranks(RANKS, check)
        self.assertTrue(torch.equal(held, others))
        # Steps go on from what the program wrote; elements that it left keep full precision.
        self.assertTrue(torch.equal(master[:350], first[:350]))
        self.assertFalse(torch.equal(master[350:], first[350:]))
        torch.testing.assert_close(master, first, atol=max(lag, other_lag), rtol=0)
        torch.testing.assert_close(held, master, atol=1e-6, rtol=0)

    def test_each_rank_has_its_part_only(self):
        """Also with fewer elements than ranks, whose last parts are empty."""
        for shapes, ranks in ((SHAPES, 3), ([(1,), (2,), (0,)], 5), ([(4097,)], 2), ([(1,)], 3)):

            def check(comm, shapes=shapes, ranks=ranks):
                given = parameters(shapes=shapes)
                optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=FREEZE, communicator=comm)
                for step in range(FREEZE + 4):
                    make_step(optimizer, given, comm.rank, step)
                stats, count = optimizer.stats(), sum(parameter.numel() for parameter in given)
                part = -(-count // ranks)
                expected = max(min(count - comm.rank * part, part), 0)
                self.assertEqual((stats.elements, stats.own_elements), (count, expected))
                for name in ("exp_avg", "exp_avg_sq", "master"):
                    found = [optimizer.state[parameter][name] for parameter in given]
                    self.assertEqual(sum(each.numel() for each in found), expected)
                self.assertEqual(stats.compressed_steps, 4)
                return joined(given)

            first, *others = run_ranks(ranks, check)
            self.assertTrue(all(torch.equal(first, other) for other in others))
            self.assertTrue(first.isfinite().all())

    def test_bytes_and_memory(self):
        """By formula, for rank parts of p elements: 128 bytes of headers to each peer in both collectives; of
        gradients a bit for each element, and 4 bytes for each 4096; of parameters half a byte for each, and 2
        for each 128, rounded up to 16 in all."""
        for shapes, ranks in (([(80, 100), (33,)], 2), ([(80, 100), (100,)], 4), ([(9,)], 3)):
            p = -(-sum(math.prod(shape) for shape in shapes) // ranks)

            def check(comm, shapes=shapes, ranks=ranks, p=p):
                given = parameters(shapes=shapes)
                optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
                signs = 128 + -(-p // 8) + 4 * -(-p // 4096)
                fours = 128 + -(-p // 2) + -(-2 * -(-p // 128) // 16) * 16
                sent = []
                for step in range(8):
                    make_step(optimizer, given, comm.rank, step)
                    sent.append(optimizer.last_step.bytes_sent)
                    if step == 0:  # a reduce-scatter, an all-gather, and one number
                        self.assertGreaterEqual(sent[0], 2 * (ranks - 1) * 4 * p)
                        self.assertLess(sent[0], 2 * (ranks - 1) * (4 * p + 64) + 300 * ranks)
                self.assertEqual(sent[3:], [(ranks - 1) * (signs + fours)] * 5)
                stats = optimizer.stats()
                self.assertEqual(stats.bytes_sent, sum(sent))
                # Moments, parameters and divisors; then what is held, gradients, what the all-gather
                # keeps of what is held, two generations of residuals, and units.
                self.assertEqual(stats.state_bytes, 16 * p + ranks * p * (4 + 4 + 4 + 8 + 2))

            run_ranks(ranks, check)

    def test_a_step_that_is_not_finite_is_skipped_by_all(self):
        """Nothing changes, in both stages, and with groups of both kinds."""

        def check(comm):
            (given, twins), runs = twin_runs(comm)
            for step in range(10):
                if step in (2, 7, 8):
                    for number, bad in enumerate((math.nan, math.inf)):
                        for parameter in given:
                            parameter.grad = gradient(parameter, comm.rank, step)
                        if comm.rank == 1:
                            bad_one = given[2 if step == 8 else number].grad
                            bad_one[(0,) * bad_one.dim()] = bad
                        before, held = runs[0].stats(), joined(given)
                        runs[0].step()
                        self.assertEqual(runs[0].last_step.skipped, 1)
                        self.assertTrue(torch.equal(held, joined(given)))
                        after = runs[0].stats()
                        self.assertEqual((before.step, before.skipped + 1), (after.step, after.skipped))
                        self.assertEqual(before.lag, after.lag)
                make_step(runs[0], given, comm.rank, step)
                make_step(runs[1], twins, comm.rank, step)
                self.assertEqual(runs[0].last_step.skipped, 0)
                self.assert_equal(given, twins)

        run_ranks(RANKS, check)

    def test_an_update_that_overflows_is_skipped_by_all(self):
        """The reduce-scatter was finite, and is taken back; the all-gather was not, and is primed again."""

        def check(comm):
            (given, twins), runs = twin_runs(comm)
            for step in range(8):
                if step == 6:
                    runs[0].param_groups[0]["lr"] = 3e38
                    make_step(runs[0], given, comm.rank, step)
                    self.assertEqual(runs[0].last_step.skipped, 1)
                    self.assert_equal(given, twins)
                    runs[0].param_groups[0]["lr"] = 0.01
                make_step(runs[0], given, comm.rank, step)
                make_step(runs[1], twins, comm.rank, step)
                self.assert_equal(given, twins)

        run_ranks(RANKS, check)

    def test_gradients_of_very_different_sizes(self):
        """A parameter whose gradients are a millionth of its neighbours' moves no further than they, though
        all share scales of the codec."""

        def check(comm):
            given = [torch.nn.Parameter(torch.zeros(count)) for count in (40, 3, 20)]
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=20, communicator=comm)
            sizes = (1.0, 1e-6, 0.0)
            for step in range(60):
                for number, (parameter, size) in enumerate(zip(given, sizes)):
                    generator = torch.Generator().manual_seed(1000 * step + 10 * comm.rank + number)
                    parameter.grad = size * torch.randn(parameter.shape, generator=generator)
                before = [parameter.detach().clone() for parameter in given]
                optimizer.step()
                if step > 20:
                    moves = [float((p.detach() - b).abs().max()) for p, b in zip(given, before)]
                    self.assertLess(max(moves), 0.1)  # ten times the rate
            self.assertEqual(float(given[2].detach().abs().max()), 0)  # it never saw a gradient

        run_ranks(RANKS, check)

    def test_the_variance_has_a_floor(self):
        """Elements whose gradients almost vanished before the freeze share scales with their neighbours."""

        def moves_of(comm, floor):
            weight = torch.nn.Parameter(torch.zeros(64))
            optimizer = ShardedOnebitAdam(
                [weight], 0.01, freeze_step=20, variance_floor=floor, scales="fused", communicator=comm
            )
            largest = 0.0
            for step in range(40):
                generator = torch.Generator().manual_seed(1000 * step + comm.rank)
                weight.grad = torch.randn(64, generator=generator)
                weight.grad[::2] *= 1e-6
                before = weight.detach().clone()
                optimizer.step()
                largest = max(largest, float((weight.detach() - before).abs().max()))
            return largest

        def check(comm):
            self.assertLess(moves_of(comm, 0.01), 2)  # a hundred times the rate, and what momentum adds
            self.assertGreater(moves_of(comm, 0.0), 200)

        run_ranks(RANKS, check)

    def test_16_bits_are_copies_of_32(self):
        def check(comm):
            for dtype in (torch.bfloat16, torch.float16):
                given = parameters(dtype)
                optimizer = ShardedOnebitAdam(given, 1e-4, freeze_step=3, communicator=comm)
                for step in range(40):
                    make_step(optimizer, given, comm.rank, step)
                # Steps of 1e-4 are less than half a unit of most elements, and yet have an effect.
                moved = given[0].detach().float() - parameters(dtype)[0].detach().float()
                self.assertGreater(float((moved != 0).float().mean()), 0.2)
                with torch.no_grad():
                    given[0].zero_()  # as if a checkpoint had been loaded
                make_step(optimizer, given, comm.rank, 40)
                self.assertLess(float(given[0].detach().abs().max()), 0.05)
                self.assertGreater(float(given[1].detach().abs().max()), 0.5)

        run_ranks(RANKS, check)

    def test_a_state_of_each_rank_continues_bit_for_bit(self):
        """From both stages; residuals and what is held belong to it."""

        def check(comm):
            for dtype in (torch.float32, torch.bfloat16):
                for steps in (FREEZE - 1, FREEZE, FREEZE + 5):
                    given, again = parameters(dtype), parameters(dtype)
                    groups = [
                        [{"params": each[:1]}, {"params": each[1:], "non_freeze": True}]
                        for each in (given, again)
                    ]
                    optimizer = ShardedOnebitAdam(groups[0], 0.01, freeze_step=FREEZE, communicator=comm)
                    for step in range(steps):
                        make_step(optimizer, given, comm.rank, step)
                    optimizer.param_groups[0]["lr"] = 0.02
                    optimizer.state[given[0]]["seen"] = 17
                    state = copy.deepcopy(optimizer.state_dict("rank"))
                    other = ShardedOnebitAdam(groups[1], 1.0, freeze_step=FREEZE, communicator=comm)
                    other.load_state_dict(state)
                    self.assert_equal(again, given)
                    self.assertEqual(other.param_groups[0]["lr"], 0.02)
                    self.assertEqual(other.state[again[0]]["seen"], 17)
                    self.assertEqual(other.stats().lag, optimizer.stats().lag)
                    for step in range(steps, steps + 6):
                        make_step(optimizer, given, comm.rank, step)
                        make_step(other, again, comm.rank, step)
                        self.assert_equal(again, given)
                    self.assertEqual(other.stats().step, optimizer.stats().step)

        run_ranks(RANKS, check)

    def test_a_state_of_all_ranks_fits_any_number(self):
        """It is the same on all ranks; master parameters are what ranks hold at first; what was owed is paid
        by what the resumed ranks send, whose mean residual then has it."""

        def named(tensors):
            return [(name, tensor) for name, tensor in zip("abc", tensors)]

        def train(comm):
            given = parameters()
            optimizer = ShardedOnebitAdam(named(given), 0.01, freeze_step=FREEZE, communicator=comm)
            for step in range(9):
                make_step(optimizer, given, comm.rank, step)
            return optimizer.state_dict()

        first, second = run_ranks(RANKS, train)
        for number, entry in first["state"].items():
            self.assertEqual(entry["onebit"], second["state"][number]["onebit"])
            for name in ("exp_avg", "exp_avg_sq", "master", "residual"):
                self.assertTrue(torch.equal(entry[name], second["state"][number][name]), name)
                self.assertEqual(entry[name].shape, torch.Size(SHAPES[number]))
        self.assertGreater(float(first["state"][0]["residual"].abs().max()), 0.01)

        for ranks, codec in ((1, "sign"), (2, "sign"), (3, "sign"), (5, "sign"), (3, "fp4"), (2, None)):

            def resume(comm, codec=codec):
                given = parameters()
                order = named(given)[::-1]  # names decide
                optimizer = ShardedOnebitAdam(
                    order, 1.0, freeze_step=FREEZE, codec=codec, communicator=comm
                )
                optimizer.load_state_dict(copy.deepcopy(first))
                self.assertEqual(optimizer.stats().frozen_at, FREEZE)
                for number, parameter in enumerate(given):
                    self.assertTrue(torch.equal(parameter.detach(), first["state"][number]["master"]))
                again = optimizer.state_dict()["state"]
                for number in range(3):  # nothing is lost before a step
                    for name in ("exp_avg", "exp_avg_sq", "master", "residual"):
                        self.assertTrue(torch.equal(again[2 - number][name], first["state"][number][name]))
                for parameter in given:
                    parameter.grad = torch.zeros_like(parameter)
                before = {name: entry["exp_avg"] for name, entry in enumerate(again.values())}
                optimizer.step()
                after = optimizer.state_dict()["state"]
                for number in range(3):
                    # m grew by a tenth of what the average gave; that and the new residual are the old.
                    given_back = (after[number]["exp_avg"] - 0.9 * before[number]) / 0.1
                    total = given_back + after[number]["residual"]
                    torch.testing.assert_close(total, again[number]["residual"], atol=2e-4, rtol=1e-4)
                for step in range(10, 14):
                    make_step(optimizer, given, comm.rank, step)
                return joined(given)

            runs = run_ranks(ranks, resume)
            self.assertTrue(all(torch.equal(runs[0], other) for other in runs))

    def test_a_state_may_be_loaded_before_and_after_the_first_step(self):
        def check(comm):
            given, others = parameters(), parameters()
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=FREEZE, communicator=comm)
            second = ShardedOnebitAdam(others, 0.5, freeze_step=FREEZE, communicator=comm)
            for step in range(7):
                make_step(optimizer, given, comm.rank, step)
                make_step(second, others, comm.rank, step + 50)
            second.load_state_dict(optimizer.state_dict("rank"))
            # A state that waits for its next step is saved whole.
            second.load_state_dict(copy.deepcopy(second.state_dict("rank")))
            for step in range(7, 10):
                make_step(optimizer, given, comm.rank, step)
                make_step(second, others, comm.rank, step)
            self.assert_equal(others, given)
            fresh = parameters()
            third = ShardedOnebitAdam(fresh, 0.5, freeze_step=FREEZE, communicator=comm)
            third.load_state_dict(optimizer.state_dict())
            third.load_state_dict(copy.deepcopy(third.state_dict("rank")))  # with what is carried over
            make_step(third, fresh, comm.rank, 10)
            self.assertEqual(third.stats().step, 11)

        run_ranks(RANKS, check)

    def test_scalers_and_clipping(self):
        def check(comm):
            plain, scaled = parameters(), parameters()
            reference = ShardedOnebitAdam(plain, 0.01, freeze_step=FREEZE, communicator=comm)
            optimizer = ShardedOnebitAdam(scaled, 0.01, freeze_step=FREEZE, communicator=comm)
            for step in range(8):
                make_step(reference, plain, comm.rank, step)
                for parameter in scaled:
                    parameter.grad = gradient(parameter, comm.rank, step) * 1024
                optimizer.grad_scale, optimizer.found_inf = torch.tensor(1024.0), torch.tensor(0.0)
                optimizer.step()
                del optimizer.grad_scale, optimizer.found_inf
            self.assert_equal(scaled, plain)
            clipped = parameters()
            optimizer = ShardedOnebitAdam(
                clipped, 0.01, freeze_step=FREEZE, max_grad_norm=0.5, communicator=comm
            )
            for step in range(8):
                for parameter in clipped:
                    parameter.grad = gradient(parameter, comm.rank, step)
                norm = torch.linalg.vector_norm(torch.cat([p.grad.reshape(-1) for p in clipped]))
                optimizer.step()
                if step >= FREEZE:
                    self.assertAlmostEqual(optimizer.last_step.grad_norm / float(norm), 1, places=5)

        run_ranks(RANKS, check)

    def test_groups_and_parameters_without_gradients(self):
        def check(comm):
            given = parameters()
            given[1].requires_grad_(False)
            mask = torch.zeros(SHAPES[0])
            mask[:3] = 1
            groups = [
                {"params": [given[0]], "exp_avg_mask": mask, "weight_decay": 0.0},
                {"params": given[1:]},
            ]
            optimizer = ShardedOnebitAdam(groups, 0.01, freeze_step=2, weight_decay=0.1, communicator=comm)
            for step in range(6):
                for parameter in (given[0], given[2]):
                    parameter.grad = gradient(parameter, comm.rank, step)
                if comm.rank == 1:
                    given[2].grad = None  # zeros, where rank 0 has a gradient
                optimizer.step()
            for _ in range(20):  # until what ranks hold has followed
                optimizer.step(lambda: 1.5)
            before = parameters()
            moved = [bool((p != b).any()) for p, b in zip(given, before)]
            self.assertEqual(moved, [True, False, True])
            torch.testing.assert_close(given[0][3:], before[0][3:], atol=1e-4, rtol=0)
            self.assertFalse((given[0][:3] == before[0][:3]).any())
            self.assertEqual(optimizer.step(lambda: 1.5), 1.5)
            given[0].requires_grad_(False)
            whole = optimizer.state_dict()["state"][0]["master"]
            optimizer.step()
            self.assertTrue(torch.equal(optimizer.state_dict()["state"][0]["master"], whole))
            given[1].grad = torch.ones(SHAPES[1])
            with self.assertRaisesRegex(onebit.InvalidUsage, "required none at the first step"):
                optimizer.step()

        run_ranks(RANKS, check)

    def test_what_is_refused(self):
        def check(comm):
            given = parameters()

            def made(**options):
                return ShardedOnebitAdam(given, communicator=comm, **{"freeze_step": 3, **options})

            with self.assertRaisesRegex(TypeError, "freeze_step"):
                ShardedOnebitAdam(given, communicator=comm)
            for bad in (0, -1, 2.5, True, "automatic"):
                with self.assertRaisesRegex(onebit.InvalidArgument, "freeze_step is .* at least 1, or 'never'"):
                    made(freeze_step=bad)
            for bad in ("topk", "int8_stochastic"):
                with self.assertRaisesRegex(onebit.InvalidArgument, bad):
                    made(codec=bad)
            with self.assertRaisesRegex(onebit.InvalidArgument, 'gather="uint8mm" is not offered'):
                made(gather="uint8mm")
            for option in ({"block": 64}, {"residual_type": "bfloat16"}):
                with self.assertRaisesRegex(onebit.InvalidArgument, "belongs to codec, which is None"):
                    made(codec=None, **option)
            with self.assertRaisesRegex(onebit.InvalidArgument, "levels=1 belongs to codec and gather"):
                made(codec=None, gather=None, levels=1)
            # These are used from the freeze on only.
            with self.assertRaisesRegex(onebit.InvalidArgument, "block is 7, but must"):
                made(block=7)
            with self.assertRaisesRegex(onebit.InvalidArgument, "residualType is"):
                made(residual_type="float16")
            with self.assertRaisesRegex(onebit.InvalidArgument, "scales is 'segment'"):
                made(scales="segment")
            with self.assertRaisesRegex(onebit.InvalidArgument, "variance_floor is -1"):
                made(variance_floor=-1)
            with self.assertRaisesRegex(onebit.InvalidArgument, "max_grad_norm is nan"):
                made(max_grad_norm=math.nan)
            with self.assertRaisesRegex(onebit.InvalidArgument, "'global' and 'rank'"):
                made(checkpoint="exact")
            with self.assertRaisesRegex(onebit.InvalidArgument, "levels=7"):
                made(levels=7)
            with self.assertRaisesRegex(onebit.InvalidArgument, "must be the same"):
                ShardedOnebitAdam(
                    [{"params": given[:1]}, {"params": given[1:], "eps": 1.0}], freeze_step=3,
                    communicator=comm,
                )  # fmt: skip
            with self.assertRaisesRegex(onebit.InvalidArgument, "torch.float64, but must"):
                ShardedOnebitAdam(
                    [torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))], freeze_step=3, communicator=comm
                )
            with self.assertRaisesRegex(onebit.InvalidUsage, "state_dict"):
                copy.deepcopy(made())
            optimizer = made()
            make_step(optimizer, given, 0, 0)
            with self.assertRaisesRegex(onebit.InvalidUsage, "in use"):
                optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
            with self.assertRaisesRegex(onebit.InvalidArgument, "another kind of optimizer"):
                optimizer.load_state_dict(torch.optim.AdamW(given).state_dict())
            with self.assertRaisesRegex(onebit.InvalidArgument, "another optimizer of onebit"):
                optimizer.load_state_dict(OnebitAdam(given, communicator=comm).state_dict())
            state = optimizer.state_dict()
            state["param_groups"][0]["lr"] = 5.0
            state["state"][0]["exp_avg_sq"].view(-1)[0] = -1
            with self.assertRaisesRegex(onebit.InvalidArgument, "exp_avg_sq .* negative"):
                optimizer.load_state_dict(state)
            state = optimizer.state_dict()
            del state["state"][1]["residual"]
            with self.assertRaisesRegex(onebit.InvalidArgument, "residual of .* shape"):
                optimizer.load_state_dict(state)
            state = optimizer.state_dict("rank")
            damaged = bytearray(bytes(state["state"][0]["onebit"]))
            damaged[-100] ^= 1
            state["state"][0]["onebit"] = bytes(damaged)
            with self.assertRaises(onebit.Corrupt):
                optimizer.load_state_dict(state)
            self.assertEqual(optimizer.param_groups[0]["lr"], 1e-3)
            given[0].grad = torch.zeros(SHAPES[0]).to_sparse()
            with self.assertRaisesRegex(onebit.InvalidArgument, "sparse"):
                optimizer.step()
            make_step(optimizer, given, 0, 1)
            with torch.no_grad():
                given[0][0, 0] = math.nan
            with self.assertRaisesRegex(onebit.InvalidArgument, "not finite: write finite ones"):
                make_step(optimizer, given, 0, 2)
            with torch.no_grad():
                given[0][0, 0] = 1.0
            optimizer.param_groups[0]["betas"] = (0.5, 0.5)
            with self.assertRaisesRegex(onebit.InvalidUsage, "cannot change"):
                optimizer.step()
            optimizer.param_groups[0]["betas"] = (0.9, 0.999)
            given[0].data = given[0].data.clone()
            with self.assertRaisesRegex(onebit.InvalidUsage, "has moved in memory"):
                optimizer.step()
            optimizer.close()
            with self.assertRaisesRegex(onebit.InvalidUsage, "closed"):
                optimizer.step()

        run_ranks(1, check)

    def test_an_early_freeze_is_warned_of(self):
        def check(comm):
            with self.assertWarnsRegex(UserWarning, "frozen after 4 steps, .* averages over 1000"):
                ShardedOnebitAdam(parameters(), freeze_step=4, communicator=comm)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                ShardedOnebitAdam(parameters(), freeze_step=5, betas=(0.9, 0.95), communicator=comm)
                ShardedOnebitAdam(parameters(), freeze_step="never", communicator=comm)

        run_ranks(1, check)

    def test_states_of_other_ranks_are_refused(self):
        def train(comm):
            given = parameters()
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
            for step in range(4):
                make_step(optimizer, given, comm.rank, step)
            return optimizer.state_dict("rank")

        states = run_ranks(RANKS, train)

        def resume(comm):
            optimizer = ShardedOnebitAdam(parameters(), 0.01, freeze_step=2, communicator=comm)
            optimizer.load_state_dict(states[0])

        for error in errors_of_ranks(3, resume):
            self.assertIsInstance(error, onebit.Mismatch)
            self.assertRegex(str(error), "rank 0 of 2, and this is rank . of 3: load .* 'global'")

        def exchanged(comm):
            groups = [{"params": parameters(), "non_freeze": True}]
            optimizer = ShardedOnebitAdam(groups, 0.01, freeze_step=2, communicator=comm)
            optimizer.load_state_dict(states[1 - comm.rank])

        for error in errors_of_ranks(RANKS, exchanged):
            self.assertIsInstance(error, onebit.Mismatch)

    def test_parameters_that_differ_between_ranks_are_refused(self):
        def check(comm):
            shapes = SHAPES if comm.rank == 0 else SHAPES[::-1]
            ShardedOnebitAdam(parameters(shapes=shapes), freeze_step=3, communicator=comm)

        for error in errors_of_ranks(RANKS, check):
            self.assertIsInstance(error, onebit.InvalidArgument)

    def test_options_that_differ_between_ranks_are_refused(self):
        def train(comm, options, at):
            given = parameters()
            made = {"lr": 0.01, "freeze_step": 2, **(options if at == 0 else {})}
            optimizer = ShardedOnebitAdam(given, **made, communicator=comm)
            for number in range(3):
                if number == at > 0:
                    optimizer.param_groups[0].update(options)
                make_step(optimizer, given, comm.rank, number)

        for options, at, text in (
            ({"freeze_step": 3}, 0, "rank 1 is freeze_step=3, but on rank 0 freeze_step=2"),
            ({"codec": "fp4"}, 0, "rank 1 is codec=fp4, but on rank 0 codec=sign"),
            ({"max_grad_norm": 1.0}, 0, "rank 1 is max_grad_norm=1.0"),
            ({"lr": 0.02}, 0, r"rank 1 is param_groups\[0\] with lr 0.02"),
            ({"betas": (0.8, 0.999)}, 0, r"rank 1 is param_groups\[0\] with .* betas \[0.8, 0.999\]"),
            ({"lr": 0.02}, 2, r"rank 1 is param_groups\[0\] with lr 0.02"),  # the first compressed step
        ):
            errors = errors_of_ranks(RANKS, lambda comm, o=options, a=at: train(comm, o if comm.rank == 1 else {}, a))
            for error in errors:
                self.assertIsInstance(error, onebit.InvalidArgument)
                self.assertRegex(str(error), text)

    def test_a_rank_that_leaves_ends_the_step_and_the_others_go_on_from_the_last_state(self):
        have_state = threading.Barrier(3)

        def check(comm):
            given = parameters()
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
            for step in range(6):
                make_step(optimizer, given, comm.rank, step)
            state = copy.deepcopy(optimizer.state_dict())
            have_state.wait()
            if comm.rank == 1:
                comm.abort()
                comm.close()
                return None
            before = joined(given)
            with self.assertRaises(onebit.Error):
                make_step(optimizer, given, comm.rank, 6)
            self.assertTrue(torch.equal(before, joined(given)))
            return state

        first, _, third = run_ranks(3, check)
        self.assertEqual(first["state"][0]["onebit"], third["state"][0]["onebit"])

        def resume(comm):
            given = parameters()
            optimizer = ShardedOnebitAdam(given, 0.01, freeze_step=2, communicator=comm)
            optimizer.load_state_dict(first)
            make_step(optimizer, given, comm.rank, 6)
            self.assertEqual(optimizer.stats().step, 7)
            return joined(given)

        one, other = run_ranks(2, resume)
        self.assertTrue(torch.equal(one, other))


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # stages are short here
