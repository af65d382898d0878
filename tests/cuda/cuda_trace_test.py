# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of calls on CUDA streams, over NCCL and a host transport: cuda_trace_test.py CUDA_COLLECTIVES_TEST"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import trace_rules  # noqa: E402  (the path comes first)

PROGRAM = ""
ENQUEUED = {"compress", "reduce", "decode", "commit", "allreduce"}


class CudaTraceTest(unittest.TestCase):
    def spans_of(self, test: str) -> list[trace_rules.Span]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            subprocess.run([PROGRAM, f"--gtest_filter={test}"], env={**os.environ, "ONEBIT_TRACE": str(file)},
                           capture_output=True, text=True, timeout=240, check=True)
            spans = trace_rules.read(file)
        trace_rules.check(spans)
        return spans

    def check_enqueued(self, spans: list[trace_rules.Span], more: set[str]) -> None:
        enqueued = [span for span in spans if span.category == trace_rules.ENQUEUE]
        self.assertEqual({span.row for span in enqueued}, {"enqueuing"})
        self.assertLessEqual(ENQUEUED | more, {span.name for span in enqueued})
        # The phases of a call lie in the span that is named after the call.
        whole = [span for span in enqueued if span.name == span.args["collective"]]
        for span in enqueued:
            if span.name == "compress" and span.args["collective"] == "allreduce":
                around = [one for one in whole if span.lies_in(one) and one.rank == span.rank
                          and one.communicator == span.communicator]
                self.assertEqual([one.call for one in around], [span.call], span)

    def test_over_nccl_all_is_enqueued_by_the_caller(self):
        spans = self.spans_of("*EveryCollective*/nccl")
        self.check_enqueued(spans, {"seal", "exchange", "check"})
        # The program compares with calls on the host, which are on other communicators.
        on_streams = {span.communicator for span in spans if span.category == trace_rules.ENQUEUE}
        self.assertEqual({span.row for span in spans if span.communicator in on_streams}, {"enqueuing"})

    def test_over_a_host_transport_a_thread_moves_the_messages(self):
        spans = self.spans_of("*EveryCollective*/local")
        self.check_enqueued(spans, set())
        moved = [span for span in spans if span.category != trace_rules.ENQUEUE]
        self.assertLessEqual({"send", "receive", "exchange", "wait for stream"}, {span.name for span in moved})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
