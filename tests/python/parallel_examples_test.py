# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The examples of perf/examples/parallel: parallel_examples_test.py ONEBIT_RUN EXAMPLES TEXT [TestCase.test].

They compare themselves with dense computations. MistakesTest, a test of label study, puts mistakes into copies of them
and sees that they fail.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch  # pylint: disable=unused-import
from rank_jobs import ceil_to

ONEBIT_RUN, EXAMPLES, TEXT = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
RANKS = 4
PEERS = RANKS * (RANKS - 1)  # pairs of ranks that send to each other


def run(program: pathlib.Path, argument: str = TEXT, ranks: int = RANKS) -> subprocess.CompletedProcess:
    command = [ONEBIT_RUN, "-n", str(ranks), "--", sys.executable, "-B", str(program), argument]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def int8_bytes(rows: int, row: int) -> int:
    """Bytes of a message of `rows` of `row` int8 numbers, each with a scale of 2 bytes."""
    return 64 + ceil_to(2 * rows, 16) + rows * row


class Found:
    """The output of an example: SNRs in dB, and bytes."""

    def __init__(self, name: str):
        result = run(EXAMPLES / f"{name}.py")
        assert result.returncode == 0, result.stdout + result.stderr
        self.text = result.stdout
        lines = re.findall(r"^(.*): SNR (\S+) dB \(at least (\S+)\)", result.stdout, re.MULTILINE)
        self.snr = {what: float(snr) for what, snr, _ in lines}
        self.least = {what: float(least) for what, _, least in lines}
        lines = re.findall(r"^(.*): (\d+) bytes, by the formula \d+, dense (\d+)", result.stdout, re.MULTILINE)
        self.bytes = {what: int(sent) for what, sent, _ in lines}
        self.dense = {what: int(dense) for what, _, dense in lines}


class ParallelExamplesTest(unittest.TestCase):
    def assert_snrs(self, found: Found, least: float, *names: str):
        """The SNRs of `names` are at least `least` dB, and not infinite, as they would be without compression; all
        others are in full precision."""
        for what, snr in found.snr.items():
            if what in names:
                self.assertGreater(snr, least, what)
                self.assertLess(snr, 70, what)
                self.assertGreater(found.least[what], 25, what)
            else:
                self.assertIn("full precision", what)
                self.assertGreater(snr, 90, what)
        self.assertLessEqual(set(names), set(found.snr))

    def test_ulysses(self):
        found = Found("ulysses")
        self.assert_snrs(
            found, 40, "int8: queries, keys and values", "int8: first attention", "int8: gradients of the blocks"
        )
        # Two layers, two passes; 64 tokens of 32 numbers for each pair.
        expected = PEERS * 2 * 2 * (int8_bytes(3 * 64, 32) + int8_bytes(64, 32))
        self.assertEqual(found.bytes["int8: forward and backward"], expected)
        dense = PEERS * 2 * 2 * (64 + 4 * 3 * 64 * 32 + 64 + 4 * 64 * 32)
        self.assertEqual(found.bytes["full precision: forward and backward"], dense)
        self.assertEqual(found.dense["int8: forward and backward"], dense)

    def test_moe(self):
        found = Found("moe")
        whats = [f"int8 and bf16: {what}" for what in ("outputs", "gradients of tokens", "gradients of parameters")]
        self.assert_snrs(found, 40, *whats)
        rows = re.search(r"^rows from each rank to each: \[\[(.*)\]\]$", found.text, re.MULTILINE)
        rows = [[int(number) for number in part.split(",")] for part in rows[1].split("], [")]
        self.assertEqual([sum(sent) for sent in rows], [2 * 64, 0, 2 * 128, 2 * 160])  # two experts a token
        self.assertEqual([sent[3] for sent in rows], [0] * RANKS)
        self.assertGreater(len({number for sent in rows for number in sent}), 5)  # ragged
        moved = [rows[rank][peer] for rank in range(RANKS) for peer in range(RANKS) if rank != peer]
        counts = PEERS * (64 + 2 * 8)
        expected = counts + 2 * sum(int8_bytes(number, 128) + 64 + 2 * 128 * number for number in moved)
        self.assertEqual(found.bytes["int8 and bf16: forward and backward"], expected)
        dense = counts + 2 * 2 * sum(64 + 4 * 128 * number for number in moved)
        self.assertEqual(found.bytes["full precision: forward and backward"], dense)

    def test_ring_attention(self):
        found = Found("ring_attention")
        self.assert_snrs(found, 45, "token_ring, int8: output", "light_seq, int8: output")
        # 64 tokens of 4 heads of 32 numbers. A log is sent for each head of an output.
        queries, both, logs = int8_bytes(256, 32), int8_bytes(512, 32), 64 + 4 * 256
        self.assertEqual(found.bytes["token_ring, int8"], PEERS * (2 * queries + logs))
        # Keys and values go one rank further three times, and two ranks further twice; rank 0 helps rank 3 once.
        self.assertEqual(found.bytes["light_seq, int8"], 5 * both + 2 * queries + logs)
        self.assertIn("light_seq: blocks of the busiest rank: 3\n", found.text)

    def test_gnnpipe(self):
        found = Found("gnnpipe")
        kinds = ("activations", "gradients")
        in_ef, plain = ([f"fp4 {mode}: {kind} of the last epoch" for kind in kinds] for mode in ("ef", "plain"))
        for what in (*in_ef, *plain):
            self.assertGreaterEqual(found.snr[what], found.least[what])
        for difference, whole in zip(in_ef, plain):
            self.assertLess(found.snr[whole], 22)
            self.assertGreater(found.snr[difference], found.snr[whole] + 15)
        self.assertGreater(found.snr["fp4 ef: outputs"], found.snr["fp4 plain: outputs"] + 5)
        sizes = {name: size for name, size in found.bytes.items() if "fp4" in name}
        # Three boundaries, both ways, 60 epochs; checksums in the 17th, 33rd and 49th.
        lines = [line for line in pathlib.Path(TEXT).read_bytes().decode().lower().splitlines()
                 if len(set(line.split())) > 2]
        vertices = min(256, len(lines))
        message = 64 + ceil_to(2 * vertices, 16) + vertices * 64 // 2
        self.assertEqual(sizes["fp4 plain: 60 epochs"], 6 * 60 * message)
        self.assertEqual(sizes["fp4 ef: 60 epochs"], 6 * (60 * message + 3 * 72))
        self.assertEqual(found.bytes["full precision: 60 epochs"], 6 * 60 * (64 + 4 * 64 * vertices))

    def test_functions(self):
        result = run(pathlib.Path(__file__).with_name("parallel_examples_rank.py"), str(EXAMPLES))
        self.assertEqual(result.returncode, 0, result.stderr)
        for check in ("checks_ulysses", "checks_moe", "checks_rows_passed_on"):
            self.assertEqual(result.stdout.count(check), RANKS, result.stdout)

    def test_arguments(self):
        with tempfile.NamedTemporaryFile() as short:
            result = run(EXAMPLES / "gnnpipe.py", short.name, ranks=2)
            self.assertEqual(result.returncode, 1)
            self.assertIn("has 0 bytes: give a text of at least 16384", result.stderr)
            short.write(b"x" * 20000)
            short.flush()
            result = run(EXAMPLES / "gnnpipe.py", short.name, ranks=2)
            self.assertEqual(result.returncode, 1)
            self.assertIn("the text has 0 lines of 3 different words or more: give one with 64", result.stderr)


class MistakesTest(unittest.TestCase):
    def test_mistakes_are_found(self):
        mistakes = {
            "a gradient stays": ("ulysses", "ulysses.py", "return ctx.exchange(gradient)", "return gradient"),
            "outputs keep the order of experts": ("moe", "moe.py", "returned[order.argsort()]", "returned[order]"),
            "another piece's positions": ("ring_attention", "ring_attention.py", "places[helped]", "places[rank]"),
            "nothing is held": ("gnnpipe", "rank_links.py", '"mode": mode', '"mode": "plain"'),
        }
        for name, (program, file, right, wrong) in mistakes.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(shutil.copytree(EXAMPLES, f"{folder}/parallel"))
                text = (copy / file).read_text(encoding="utf-8")
                self.assertEqual(text.count(right), 1, right)
                (copy / file).write_text(text.replace(right, wrong), encoding="utf-8")
                result = run(copy / f"{program}.py")
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn("<-- OFF", result.stdout, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
