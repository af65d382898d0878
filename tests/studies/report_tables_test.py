# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The Markdown tables of perf/report, and how they get into a page."""

import re
import unittest

import report_input
from reporting import markdown, markers, units
from reporting.fields import Malformed

MARKED = f"# Title\n\n{markers.BEGIN}\nold\n{markers.END}\n\nafter\n"


def cells(line: str) -> list[str]:
    """Splits a row into cells; an escaped bar ends no cell."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def rows_of(text: str) -> list[list[str]]:
    return [cells(line) for line in text.splitlines() if line.startswith("|")]


class TablesTest(unittest.TestCase):
    def setUp(self):
        self.text = markdown.markdown(report_input.figures_of(report_input.document()))
        self.rows = rows_of(self.text)

    def row(self, *begin):
        return next(row for row in self.rows if row[:len(begin)] == list(begin))

    def test_all_rows_of_a_table_have_its_columns(self):
        tables = [rows_of(part) for part in self.text.split("\n\n") if part.startswith("|")]
        self.assertEqual([len(table) for table in tables], [2 + 12, 2 + 3])
        for table in tables:
            self.assertEqual({len(row) for row in table}, {len(table[0])})

    def test_times_and_ratios(self):
        head = self.rows[0]
        row = dict(zip(head, self.row("1 Gbit/s", "64 MiB"), strict=True))
        self.assertEqual(row["Gloo"], "848")
        self.assertEqual(row["onebit dense"], "846")
        self.assertEqual(row["onebit 1-bit"], "31.0")
        self.assertEqual(row["over Gloo"], "27.4x")
        self.assertEqual(row["over best dense"], "27.3x")
        self.assertEqual(row["of limit"], "86 %")
        self.assertEqual(row["MPICH"], units.NO_FIGURE)  # it failed

    def test_times_of_one_repetition_are_marked(self):
        self.assertNotIn(markdown.ONCE, self.text)
        document = report_input.document()
        for row in document["results"]:
            if (row["link"], row["system"], row["size"]) == ("shm", "gloo", 64 << 20):
                row["repetitions"] = 1
        text = markdown.markdown(report_input.figures_of(document))
        self.assertEqual(text.count(markdown.ONCE), 2)  # and the note
        row = next(row for row in rows_of(text) if row[:2] == ["shared memory", "64 MiB"])
        self.assertTrue(row[self.rows[0].index("Gloo")].endswith(markdown.ONCE), row)
        self.assertIn(f"\n{markdown.ONCE_NOTE}\n", text)

    def test_losses_are_there(self):
        row = dict(zip(self.rows[0], self.row("shared memory", "64 MiB"), strict=True))
        self.assertEqual((row["over best dense"], row["over Gloo"]), ("0.87x", "1.22x"))

    def test_break_even(self):
        self.assertEqual(self.rows[-3:], [
            ["1 Gbit/s", "from 23 KiB", "from 37 KiB"], ["10 Gbit/s", units.NO_FIGURE, "from 1 MiB"],
            ["shared memory", units.NO_FIGURE, "not up to 64 MiB"]])

    def test_failures_are_named_with_their_reason(self):
        self.assertIn("* No time of Gloo, 1 Gbit/s, 2 hosts, 64 MiB: ended with status 1\n", self.text)
        self.assertIn("4 MiB: 2 wrong elements in its result\n", self.text)
        # A text from a file is neither markup nor the end of a line.
        self.assertIn(r'MPICH, 1 Gbit/s, 4 hosts, 64 MiB: timed out: \<mpiexec\> & "friends"' "\n", self.text)

    def test_texts_from_files_stay_texts(self):
        document = report_input.document()
        document["machine"]["cpu"] = "a|b\n<!-- compare:end -->\n**c**"
        text = markdown.markdown(report_input.figures_of(document))
        self.assertTrue(text.startswith(r"a\|b \<!-- compare:end --\> \*\*c\*\*, 2 cores"), text[:80])

    def test_sizes_shown_are_few_and_far_apart(self):
        sizes = [1 << shift for shift in range(10, 27)]
        self.assertEqual(markdown.shown_sizes(sizes), [1 << 14, 1 << 18, 1 << 22, 1 << 26])
        self.assertEqual(markdown.shown_sizes([4096]), [4096])
        self.assertEqual(markdown.shown_sizes([4096, 8192]), [4096, 8192])

    def test_without_4_hosts_the_most_are_shown(self):
        document = report_input.document()
        document["results"] = [row for row in document["results"] if row["hosts"] == 2]
        text = markdown.markdown(report_input.figures_of(document))
        self.assertIn("on 2 hosts", text)
        self.assertIn("| 1 Gbit/s |", text)

    def test_several_ranks_on_a_host_have_tables_of_their_own(self):
        document = report_input.document()
        text = markdown.markdown(report_input.figures_of(document, report_input.on_shared_hosts(document, 4)))
        self.assertIn("on 4 hosts (shared memory: processes), median", text)
        self.assertIn("on 4 hosts x 4 ranks, median", text)
        tables = [rows_of(part) for part in text.split("\n\n") if part.startswith("|")]
        self.assertEqual([len(table) for table in tables], [2 + 12, 2 + 8, 2 + 2, 2 + 3])
        self.assertEqual(tables[3][0], ["link", "2 hosts", "4 hosts", "2 hosts x 4 ranks", "4 hosts x 4 ranks"])
        self.assertEqual(tables[3][2], ["1 Gbit/s", "from 23 KiB", "from 37 KiB", "from 23 KiB", "from 37 KiB"])
        # 2 (4-1)/4, 2 (16-1)/16, and 4 times the first.
        self.assertIn("Sent by the busiest host for one call on 4 hosts x 4 ranks, in tensors. Without headers, two "
                      "levels are 1.5 in full precision, 0.0472 with one bit and 0.193 with four bits; a ring of all "
                      "ranks is 1.88, and if every rank sends for itself it is 6:", " ".join(text.split()))
        row = dict(zip(tables[2][0], tables[2][2], strict=True))
        sent = next(row["link_bytes"] for row in document["results"] if row["system"] == "onebit-ef" and
                    (row["rate"], row["hosts"], row["size"]) == ("1gbit", 4, 64 << 20))
        self.assertEqual((row["link"], row["size"]), ("1 Gbit/s", "64 MiB"))
        self.assertEqual(row["onebit 1-bit"], units.digits(sent / (64 << 20)))

    def test_only_several_ranks_on_a_host(self):
        shared = report_input.on_shared_hosts(report_input.document(), 2)
        text = markdown.markdown(report_input.figures_of(shared))
        self.assertNotIn("shared memory", text)
        self.assertIn("one allreduce of fp32 on 4 hosts x 2 ranks, median", text)
        for row in shared["results"]:
            row["link_bytes"] = None
        self.assertNotIn("busiest host", markdown.markdown(report_input.figures_of(shared)))

    def test_without_a_system_there_are_gaps(self):
        document = report_input.document()
        document["results"] = [row for row in document["results"] if row["system"] != "onebit-ef"]
        rows = rows_of(markdown.markdown(report_input.figures_of(document)))
        self.assertNotIn("onebit 1-bit", rows[0])
        self.assertEqual(rows[2][-3:], [units.NO_FIGURE] * 3)
        self.assertEqual(rows[-1][1:], [units.NO_FIGURE] * 2)


class MarkersTest(unittest.TestCase):
    def test_replaces_what_is_between_the_markers_and_nothing_else(self):
        self.assertEqual(markers.updated(MARKED, "new\n", "page.md"), MARKED.replace("old", "new"))

    def test_twice_is_the_same_as_once(self):
        once = markers.updated(MARKED, "a\n\nb\n", "page.md")
        self.assertEqual(markers.updated(once, "a\n\nb\n", "page.md"), once)

    def test_markers_must_be_there_once_and_in_order(self):
        for text in ("", MARKED.replace(markers.BEGIN, ""), MARKED.replace(markers.END, ""),
                     MARKED + MARKED, MARKED.replace(markers.END, f"text {markers.END}")):
            with self.assertRaisesRegex(Malformed, "page.md: needs the line <!-- compare:"):
                markers.updated(text, "new\n", "page.md")
        with self.assertRaisesRegex(Malformed, "stands before"):
            markers.updated(f"{markers.END}\n{markers.BEGIN}\n", "new\n", "page.md")

    def test_a_marker_within_a_line_is_only_mentioned(self):
        text = f"Between {chr(96)}{markers.BEGIN}{chr(96)} and so on.\n" + MARKED
        self.assertTrue(markers.updated(text, "new\n", "page.md").startswith(text[:40]))


class UnitsTest(unittest.TestCase):
    def test_three_digits_without_exponents(self):
        for value, text in [(0, "0"), (0.29, "0.290"), (0.0366, "0.0366"), (8.4, "8.40"), (99.96, "100"),
                            (8460, "8460"), (0.09996, "0.100")]:
            self.assertEqual(units.digits(value), text)

    def test_units(self):
        self.assertEqual(units.size_text(64 << 20), "64 MiB")
        self.assertEqual(units.size_text(1536), "1.5 KiB")
        self.assertEqual(units.rate_text(2_700_000_000), "2.7 Gbit/s")
        self.assertEqual(units.rate_text(100_000_000), "100 Mbit/s")
        self.assertEqual([units.time_text(us) for us in (12.3, 31_000, 8_460_000)],
                         ["12.3 us", "31.0 ms", "8.46 s"])
        self.assertEqual([units.speedup_text(ratio) for ratio in (None, 0.5, 1, 27.35, 120)],
                         [units.NO_FIGURE, "0.50x", "1.00x", "27.4x", "120x"])
        self.assertEqual([units.share_text(share) for share in (0.003, 0.86, 1.2)],
                         ["0.3 %", "86 %", "120 %"])


if __name__ == "__main__":
    unittest.main()
