# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of ranks that are threads: trace_test.py TRACE_PROBE [NVTX_LISTENER]"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import trace_rules  # noqa: E402  (the path comes first)
from waiting import comes_true  # noqa: E402

PROBE, LISTENER = "", None  # None: built without NVTX
RANKS = 4
HEADER_BYTES = 64
WAIT_SECONDS = 60
SPAN_NAMES = {"compress", "reduce", "decode", "exchange", "send", "receive", "allreduce", "group", "barrier",
              "all-gather", "send/recv"}


def is_asleep(thread: int, process: int) -> bool:
    """A rank's thread sleeps only while it waits for messages: calls take no lock."""
    stat = pathlib.Path(f"/proc/{process}/task/{thread}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


class TraceTest(unittest.TestCase):
    def setUp(self) -> None:
        owner = tempfile.TemporaryDirectory()
        self.addCleanup(owner.cleanup)
        self.file = pathlib.Path(owner.name) / "trace.json"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEBIT_")}
        self.environment["ONEBIT_TRACE"] = str(self.file)

    def run_probe(self, *arguments: str, **variables: str) -> str:
        ended = subprocess.run([PROBE, *arguments], env=self.environment | variables, capture_output=True, text=True,
                               timeout=WAIT_SECONDS, check=True)
        self.assertEqual(ended.stderr, "")
        return ended.stdout

    def start(self, *arguments: str) -> tuple[subprocess.Popen, list[int]]:
        """A probe whose last rank waits for a line, and the threads of the others once they wait for it."""
        probe = subprocess.Popen([PROBE, *arguments], env=self.environment, text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.addCleanup(probe.stdin.close)
        self.addCleanup(probe.stdout.close)
        self.addCleanup(probe.wait)
        self.addCleanup(probe.kill)
        threads = [int(probe.stdout.readline()) for _ in range(RANKS - 1)]
        # Each of them has the messages of the others, so it waits for the last rank alone.
        self.assertTrue(comes_true(lambda: sorted(self.received().values()) == [RANKS - 2] * (RANKS - 1)))
        self.assertTrue(comes_true(lambda: all(is_asleep(thread, probe.pid) for thread in threads)))
        return probe, threads

    def received(self) -> dict[int, int]:
        """Messages received by each rank so far: the file can be read while calls run."""
        try:
            spans = trace_rules.read(self.file)
        except ValueError:  # while it was written
            return {}
        return dict(collections.Counter(span.rank for span in spans if span.name == "receive"))

    def checked(self) -> list[trace_rules.Span]:
        spans = trace_rules.read(self.file)
        trace_rules.check(spans)
        return spans

    def check_all_kinds(self, **variables: str) -> list[trace_rules.Span]:
        counters = [json.loads(line) for line in self.run_probe("calls", **variables).splitlines()]
        spans = self.checked()
        for rank in range(RANKS):
            mine = [span for span in spans if span.rank == rank]
            # Ten calls, the calls of a group, and its pair of messages.
            self.assertEqual(sum(span.category == trace_rules.CALL for span in mine), 12)
            self.assertLessEqual(SPAN_NAMES, {span.name for span in mine})
            sent = [span for span in mine if span.name == "send"]
            self.assertEqual(len(sent), counters[rank]["messages_sent"])
            self.assertEqual(sum(span.args["bytes"] + HEADER_BYTES for span in sent), counters[rank]["bytes_sent"])
            received = collections.Counter(span.peer for span in mine if span.name == "receive")
            self.assertEqual(set(received), set(range(RANKS)) - {rank})
            self.assertEqual({span.args["codec"] for span in mine if span.name == "compress"}, {"sign", "fp4"})
        return spans

    def test_spans_of_all_kinds_of_calls_nest(self):
        self.check_all_kinds(ONEBIT_COMPUTE_THREADS="0")

    def test_segments_and_compute_threads_have_spans_too(self):
        spans = self.check_all_kinds(ONEBIT_COMPUTE_THREADS="2", ONEBIT_SEGMENT_ELEMENTS="20000")
        rows = {span.row for span in spans if span.category == trace_rules.COMPUTE}
        self.assertLessEqual(rows, {"calls", "compute thread 1", "compute thread 2"})
        self.assertGreater(len(rows), 1)
        self.assertGreater(max(span.args.get("segment", 0) for span in spans), 0)

    def test_waits_name_the_rank_that_is_late(self):
        for late in (0, 2):
            with self.subTest(late=late):
                probe, _ = self.start("late", str(late))
                probe.communicate("go\n", timeout=WAIT_SECONDS)
                self.assertEqual(probe.returncode, 0)
                spans = self.checked()
                (call,) = [span for span in spans if span.category == trace_rules.CALL and span.rank == late]
                for rank in set(range(RANKS)) - {late}:
                    across = [span for span in spans if span.category == trace_rules.WAIT and span.rank == rank
                              and span.begin < call.begin < span.end]
                    self.assertEqual([span.peer for span in across], [late])

    def test_an_abort_leaves_a_complete_file(self):
        probe, _ = self.start("abort")
        probe.communicate("go\n", timeout=WAIT_SECONDS)
        self.assertEqual(probe.returncode, 0)
        spans = self.checked()
        calls = [span for span in spans if span.category == trace_rules.CALL]
        self.assertEqual({span.rank for span in calls}, {0, 2, 3})
        for call in calls:
            self.assertIs(call.args["failed"], True)
            last = max((span for span in spans if span.rank == call.rank and span.category == trace_rules.WAIT),
                       key=lambda span: span.end)
            self.assertEqual((last.name, last.peer), ("wait for message", 1))

    def test_a_kill_leaves_a_complete_file(self):
        probe, _ = self.start("late", "3")
        probe.kill()
        probe.wait()
        spans = trace_rules.read(self.file)
        self.assertEqual({span.rank for span in spans}, {0, 1, 2})

    def test_a_process_may_leave_its_communicators(self):
        self.run_probe("leave")
        calls = [span for span in self.checked() if span.category == trace_rules.CALL]
        self.assertEqual(sorted(span.rank for span in calls), list(range(RANKS)))

    def test_profilers_see_ranges_without_a_trace(self):
        if LISTENER is None:
            self.skipTest("built without NVTX")
        del self.environment["ONEBIT_TRACE"]
        counted = self.file.with_name("counted")
        self.run_probe("calls", NVTX_INJECTION64_PATH=LISTENER, NVTX_LISTENER_FILE=str(counted))
        lines = [line.split(" ", 2) for line in counted.read_text().splitlines()]
        self.assertEqual(lines[:2], [["domain", "onebit"], ["unended", "0"]])
        ranges = {name: int(count) for _, count, name in lines[2:]}
        # Six allreduces, one of them the first call of a group, on each rank.
        self.assertEqual((ranges["allreduce"], ranges["barrier"]), (6 * RANKS, RANKS))
        self.assertLessEqual({"compress", "reduce", "decode", "wait"}, set(ranges))

    def test_nothing_is_written_unless_asked_for(self):
        del self.environment["ONEBIT_TRACE"]
        self.run_probe("calls")
        self.assertEqual(list(self.file.parent.iterdir()), [])


if __name__ == "__main__":
    PROBE, LISTENER = (sys.argv[1:] + [None])[:2]
    unittest.main(argv=sys.argv[:1])
