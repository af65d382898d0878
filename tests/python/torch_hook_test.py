# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the hook, and what its report says of the links of hosts."""

import sys
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)  # skipped

import onebit.torch
from onebit.torch._hook_report import Report
from onebit.torch._host_link import HostLink


def report(**changes) -> str:
    """The text of a report."""
    figures = {
        "iterations": 9,
        "dense_iterations": 2,
        "skipped_iterations": 0,
        "bytes_sent": 10**7,
        "network_bytes": 10**6,
        "dense_bytes": 4 * 10**7,
        "host_ranks": 8,
        "link_bytes": 8 * 10**6,
        "dense_link_bytes": 32 * 10**6,
        "seconds": 2.0,
        "codec_seconds": 0.5,
        "break_even_bits_per_second": 3.84e8,
        "residual_norms": {"weight": 1.0},
    }
    return str(Report(**{**figures, **changes}))


class OptionsTest(unittest.TestCase):
    def refused(self, text: str, **options):
        with self.assertRaisesRegex(onebit.InvalidArgument, text):
            onebit.torch.State(torch.nn.Linear(2, 2), **options)

    def test_what_does_not_go_together_is_refused_before_ranks_join(self):
        self.refused('needs mode="plain"', codec="int8_stochastic")
        self.refused('block=64 does not go with codec="bf16"', codec="bf16", block=64)
        self.refused('k=64 belongs to codec="topk"', codec="fp4", k=64)
        self.refused('codec="lossless" is for weights', codec="lossless")
        for levels in (3, -1, 1.5, "2", True):
            self.refused(f"levels={levels!r} must be None or 0", levels=levels)
        for block in (0, "tensor"):
            self.refused(f"levels=2 does not go with block={block!r}", codec="sign", block=block, levels=2)

    def test_what_goes_together_is_taken(self):
        for options in ({}, {"codec": "bf16"}, {"codec": "topk", "k": 64, "levels": 2}, {"codec": "sign", "block": 64},
                        {"levels": 0}, {"levels": 1}, {"levels": 2, "codec": "bf16", "mode": "plain"}):
            self.assertEqual(onebit.torch.State(torch.nn.Linear(2, 2), **options).report().iterations, 0)


class LinksTest(unittest.TestCase):
    def test_ranks_of_a_host_share_its_link(self):
        self.assertEqual(HostLink.among([0, 0, 1, 1], 3), HostLink(2, 2, 2, True))
        uneven = [0, 0, 1, 0, 1, 2]
        self.assertEqual(
            [HostLink.among(uneven, rank) for rank in range(6)],
            [
                HostLink(3, 3, 1, True), HostLink(3, 3, 1, False), HostLink(3, 2, 1, True),
                HostLink(3, 3, 1, False), HostLink(3, 2, 1, False), HostLink(3, 1, 1, True),
            ],
        )  # fmt: skip

    def test_ranks_on_one_host_count_as_hosts(self):
        for ranks in (1, 4):
            self.assertEqual(HostLink.among([0] * ranks, 0), HostLink(ranks, 1, 1, True))
            self.assertEqual(HostLink.among(range(ranks), 0), HostLink(ranks, 1, 1, True))
        self.assertEqual(HostLink.among([0], 0).dense_bytes(1000), 0)
        self.assertEqual(HostLink.among([0] * 4, 0).dense_bytes(1000), 1500)

    def test_the_text_says_what_the_link_carried(self):
        text = report()
        self.assertIn("the link of its host with 8 ranks carried 8.0 MB, in full precision 32.0 MB\n", text)
        self.assertTrue(text.endswith("compression pays if the link of a host with 8 ranks is below 0.4 Gbit/s"))

    def test_the_text_says_where_nothing_is_saved(self):
        more = {"link_bytes": 33 * 10**6, "break_even_bits_per_second": None}
        nothing = "saves nothing on the link of a host with 8 ranks: see levels of onebit.torch.State"
        self.assertTrue(report(**more).endswith(nothing))
        self.assertNotIn(nothing, report(**more, residual_norms={}))

    def test_the_text_says_nothing_of_a_link_that_others_use(self):
        unknown = {"link_bytes": None, "dense_link_bytes": None, "break_even_bits_per_second": None}
        self.assertNotIn("link", report(**unknown))
        alone = report(host_ranks=1)
        self.assertNotIn("carried", alone)
        self.assertIn("the link of a host with 1 rank is below 0.4 Gbit/s", alone)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
