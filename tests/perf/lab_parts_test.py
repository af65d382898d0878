# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of perf/lab that need no network: rates, names, parsing and reports."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "perf"))

# pylint: disable=wrong-import-position
from ethernet_lab.counters import LinkCounts
from ethernet_lab.errors import UsageError
from ethernet_lab.json_file import JsonFile
from ethernet_lab.names import LabName
from ethernet_lab.output_reader import LibraryCount, OutputReader
from ethernet_lab.rates import FRAME_BYTES, SEGMENT_BYTES, Rate
from ethernet_lab.lab_report import JobResult, hosts_text


class RateTest(unittest.TestCase):
    def test_reads_what_tc_reads(self):
        for text, bits in (("100mbit", 10**8), ("2.7gbit", 2_700_000_000), ("1Gbit", 10**9),
                           ("5000kbit", 5_000_000), ("none", None)):
            self.assertEqual(Rate.parse(text).bits_per_second, bits)

    def test_refuses_what_is_no_rate(self):
        for text in ("", "1", "1gb", "1gbps", "-1mbit", "0mbit", "1.gbit", "nan", "1tbit", "500gbit"):
            with self.assertRaises(UsageError, msg=text):
                Rate.parse(text)

    def test_a_bucket_holds_a_super_packet_and_little_more(self):
        for text in ("1mbit", "50mbit", "100mbit", "300mbit", "1gbit", "2.7gbit", "10gbit", "100gbit"):
            rate = Rate.parse(text)
            packet = rate.super_packet_bytes()
            headers = -(-packet // SEGMENT_BYTES) * (FRAME_BYTES - SEGMENT_BYTES)
            self.assertGreaterEqual(rate.bucket_bytes(), packet + headers, text)
            self.assertGreater(rate.queue_bytes(), rate.bucket_bytes(), text)
            if rate.bits_per_second >= 10**8:
                self.assertLess(8 * rate.bucket_bytes() / rate.bits_per_second, 0.75e-3, text)


class NameTest(unittest.TestCase):
    def test_tells_who_owns_a_lab(self):
        name = LabName.of_this_process()
        self.assertEqual(name, LabName.parse(f"{name.text}-host3"))
        self.assertTrue(name.has_owner)
        self.assertEqual(name.owner, os.getpid())

    def test_a_number_given_to_another_process_is_no_owner(self):
        name = LabName.of_this_process()
        self.assertFalse(LabName(name.owner, name.owner_start - 1, name.token).has_owner)

    def test_a_process_that_has_ended_is_no_owner_even_before_it_is_reaped(self):
        process = subprocess.Popen(["sleep", "60"])
        start = int(pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        name = LabName(process.pid, start, "0000")
        self.assertTrue(name.has_owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertFalse(name.has_owner)
        process.wait()
        self.assertFalse(name.has_owner)

    def test_other_names_are_none_of_ours(self):
        for text in ("onebit-lab-", "lab-1-2-abcd", "onebit-lab-1-2-xyzw", "cni-1234"):
            self.assertIsNone(LabName.parse(text))


class OutputReaderTest(unittest.TestCase):
    def read(self, text: str) -> tuple[list[LibraryCount], str]:
        """Returns the counters found and the text relayed, for text that arrives in pieces."""
        with tempfile.TemporaryFile() as output:
            source = subprocess.Popen(
                [sys.executable, "-c", "import sys, time\nfor part in sys.argv[1].split('|'):\n"
                 " sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.02)", text],  # it arrives in pieces
                stdout=subprocess.PIPE)
            reader = OutputReader(source.stdout, output.fileno())
            source.wait()
            reader.finish()
            source.stdout.close()
            output.seek(0)
            return reader.counts, output.read().decode()

    def test_finds_the_librarys_lines_wherever_they_are_cut(self):
        counts, passed = self.read("x\n#   rank 0 sent 1|2 bytes in 3 messages\n#   rank 1 sent 45 bytes "
                                   "in 6 messages, 40 bytes of them to other hosts\n|#   rank 2 sent 7 bytes\n no end")
        self.assertEqual(counts, [LibraryCount(0, 12, 3, None), LibraryCount(1, 45, 6, 40)])
        self.assertTrue(passed.startswith("x\n#   rank 0 sent 12 bytes"), passed)
        self.assertTrue(passed.endswith(" no end"), passed)

    def test_a_line_without_end_takes_no_memory(self):
        line = "#   rank 0 sent 1 bytes in 1 messages\n"
        counts, passed = self.read("y" * 100_000 + "|" + "z" * 10 + "\n" + line)
        self.assertEqual(counts, [LibraryCount(0, 1, 1, None)])
        self.assertEqual(len(passed), 100_011 + len(line))


class JsonFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "report.json"

    def names(self) -> list[str]:
        return [path.name for path in self.path.parent.iterdir()]

    def test_an_older_file_stays_until_there_is_another(self):
        self.path.write_text("older")
        with JsonFile(self.path) as file:
            self.assertEqual(self.path.read_text(), "older")
            file.write({"a": 1})
        self.assertEqual(json.loads(self.path.read_text()), {"a": 1})
        self.assertEqual(self.names(), ["report.json"])
        with self.assertRaises(KeyError), JsonFile(self.path):
            raise KeyError
        self.assertEqual(json.loads(self.path.read_text()), {"a": 1})
        self.assertEqual(self.names(), ["report.json"])

    def test_a_run_that_fails_leaves_nothing(self):
        with JsonFile(self.path):
            pass
        self.assertEqual(self.names(), [])

    def test_a_pipe_is_written_in_place(self):
        os.mkfifo(self.path)
        reader = subprocess.Popen(["cat", self.path], stdout=subprocess.PIPE, text=True)
        with JsonFile(self.path) as file:
            file.write([1])
        self.assertEqual(json.loads(reader.communicate(timeout=30)[0]), [1])
        self.assertTrue(self.path.is_fifo())

    def test_what_cannot_be_written_is_said_at_once(self):
        path = str(self.path / "there" / "is no folder")
        with self.assertRaises(OSError) as caught:
            JsonFile(path)
        self.assertEqual(caught.exception.filename, path)


class ReportTest(unittest.TestCase):
    LINKS = [LinkCounts(1050, 4, 2000, 5, 0), LinkCounts(2000, 5, 1050, 4, 1)]

    def test_links_stand_beside_what_the_library_says(self):
        result = JobResult(Rate.parse("1gbit"), [1, 1], self.LINKS, [LibraryCount(0, 1000, 2, None)], 3)
        first, second = result.table().splitlines()[1:]
        self.assertRegex(first, r"^#    0 +1050 B +2000 B +4 +0 +1000 B +\+5\.00 %$")
        self.assertRegex(second, r"^#    1 +2000 B +1050 B +5 +1 +- +-$")
        report = result.as_json()
        self.assertEqual((report["hosts"], report["rate"], report["rate_bits_per_second"],
                          report["status"]), (2, "1gbit", 10**9, 3))
        self.assertEqual(report["links"][1], {
            "host": 1, "sent_bytes": 2000, "sent_packets": 5, "received_bytes": 1050,
            "received_packets": 4, "retransmitted_segments": 1})
        self.assertEqual(report["library"], [{"rank": 0, "sent_bytes": 1000, "sent_messages": 2,
                                              "network_bytes": None}])
        self.assertEqual(report["ranks_per_host"], [1, 1])

    def test_what_stays_in_a_host_is_none_of_the_links(self):
        counts = [LibraryCount(0, 900, 2, 400), LibraryCount(1, 900, 2, 600), LibraryCount(2, 2100, 3, 1600)]
        for ranks_per_host, library, sent in (([2, 1], counts, ["1000 B", "1600 B"]),
                                              ([2, 1], counts[1:], ["-", "1600 B"]),
                                              ([1, 2], [LibraryCount(rank, 1000, 2, None) for rank in range(3)],
                                               ["1000 B", "-"])):
            rows = JobResult(Rate.parse("1gbit"), ranks_per_host, self.LINKS, library, 0).table().splitlines()[1:]
            self.assertEqual([re.split("  +", row)[6] for row in rows], sent, rows)

    def test_hosts_are_said_with_their_ranks(self):
        for ranks_per_host, text in (([1, 1, 1], "3 hosts"), ([4, 4], "2 hosts x 4 ranks"),
                                     ([2, 1], "2 hosts with 2, 1 ranks")):
            self.assertEqual(hosts_text(ranks_per_host), text)

    def test_a_program_that_says_nothing_has_no_counts(self):
        report = JobResult(Rate.parse("none"), [1, 1], self.LINKS, [], 0).as_json()
        self.assertEqual((report["library"], report["rate_bits_per_second"]), (None, None))


if __name__ == "__main__":
    unittest.main()
