# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/report --trace on made-up traces, and on those of a sweep: report_trace_test.py [ALL_REDUCE_PERF]"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import report_input
from reporting import trace_chart, trace_file, trace_page, trace_summary
from reporting.fields import Malformed

SWEEP = None
COMM = "0000abcd"


def metadata(name: str, pid: int, tid: int | None = None, /, **args: object) -> dict:
    return {"name": name, "ph": "M", "pid": pid, "args": args} | ({} if tid is None else {"tid": tid})


def row(pid: int, tid: int, rank: int, name: str) -> dict:
    return metadata("thread_name", pid, tid, name=f"rank {rank}: {name}", rank=rank, row=name, communicator=COMM)


def span(pid: int, tid: int, name: str, category: str, begin: float, end: float, /, **args: object) -> dict:
    return {"name": name, "ph": "X", "cat": category, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin,
            "args": {"call": 0, "collective": "allreduce", "codec": "sign"} | args}


def message(pid: int, tid: int, identity: str, begin: float, end: float, **args: object) -> list[dict]:
    common = {"name": "receive", "cat": "message", "pid": pid, "tid": tid, "id2": {"local": identity}}
    return [common | {"ph": "b", "ts": begin, "args": {"call": 0} | args}, common | {"ph": "e", "ts": end}]


def clock(pid: int, boot: str, steady_us: int, unix_us: int) -> dict:
    return metadata("onebit_clock", pid, boot_id=boot, steady_ns=1000 * steady_us, unix_ns=1000 * unix_us)


def events_of(rank: int, boot: str = "a", offset: int = 0) -> list[dict]:
    """A call of 100 us, of which 40 are a wait for the other rank. Clocks show `offset` more than rank 0's."""
    at = 1000 + offset
    return [clock(rank, boot, at, 5000), row(rank, 0, rank, "calls"), row(rank, 2, rank, "exchange 1"),
            span(rank, 0, "allreduce", "call", at, at + 100, bytes=2048),
            span(rank, 0, "compress", "compute", at + 10, at + 30),
            span(rank, 0, "wait for message", "wait", at + 30, at + 70, peer=1 - rank),
            span(rank, 0, "decode", "compute", at + 75, at + 80),
            span(rank, 2, "exchange", "exchange", at + 5, at + 70, exchange=1),
            *message(rank, 2, "0x1", at + 50, at + 70, peer=1 - rank, bytes=64),
            *message(rank, 2, "0x2", at + 60, at + 65, peer=1 - rank, bytes=64)]


class TraceReportTest(unittest.TestCase):
    def setUp(self):
        owner = tempfile.TemporaryDirectory()
        self.addCleanup(owner.cleanup)
        self.folder = pathlib.Path(owner.name)

    def write(self, name: str, events: object) -> pathlib.Path:
        path = self.folder / name
        path.write_text(events if isinstance(events, str) else json.dumps(events))
        return path

    def read(self, *all_events: object) -> trace_file.Trace:
        return trace_file.read([self.write(f"{number}.json", events) for number, events in enumerate(all_events)])

    def test_adds_up_what_calls_spend(self):
        first, second = trace_summary.summaries_of(self.read(events_of(0), events_of(1)))
        self.assertEqual((first.kind, first.rank, first.calls, first.failed, first.total),
                         ("allreduce, sign", 0, 1, 0, 100))
        self.assertEqual((first.by_step, first.by_peer), ({"compress": 20, "decode": 5}, {1: 40}))
        self.assertEqual((second.rank, second.by_peer, second.waiting, second.other), (1, {0: 40}, 40, 35))

    def test_adds_up_each_kind_of_calls(self):
        events = [row(0, 0, 0, "calls"),
                  span(0, 0, "barrier", "call", 0, 10, collective="barrier", codec="dense"),
                  span(0, 0, "wait for message", "wait", 2, 9, peer=1, collective="barrier", codec="dense"),
                  # A step of a group is named after its own call.
                  span(0, 0, "group", "call", 20, 120, call=1, collective="group", codec="dense"),
                  span(0, 0, "compress", "compute", 30, 50, call=1),
                  # This call had not ended when its process did.
                  span(0, 0, "compress", "compute", 130, 140, call=2)]
        group, barrier = trace_summary.summaries_of(self.read(events))
        self.assertEqual((group.kind, group.total, group.by_step, group.waiting),
                         ("group, dense", 100, {"compress": 20}, 0))
        self.assertEqual((barrier.kind, barrier.total, barrier.by_step, barrier.by_peer),
                         ("barrier, dense", 10, {}, {1: 7}))

    def test_tables_show_who_waits_for_whom(self):
        lines = trace_page.markdown(self.read(events_of(0), events_of(1)), None).splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        self.assertEqual(cells[0], ["calls", "rank", "number", "time", "compress", "reduce", "decode", "other",
                                    "waiting", "mostly for"])
        self.assertEqual(cells[2], ["allreduce, sign", "0", "1", "0.100", "0.0200 (20 %)", "–", "0.00500 (5.0 %)",
                                    "0.0350 (35 %)", "0.0400 (40 %)", "rank 1 (40 %)"])

    def test_tables_of_some_calls(self):
        trace = self.read([row(0, 0, 0, "calls"),
                           *(span(0, 0, "allreduce", "call", 10 * n, 10 * n + n, call=n) for n in range(8)),
                           *(span(0, 0, "reduce", "compute", 10 * n, 10 * n + 1, call=n) for n in range(1, 8)),
                           span(0, 0, "send/recv", "call", 100, 105, call=4, collective="send/recv")])
        (summary,) = trace_summary.summaries_of(trace, (3, 5))
        self.assertEqual((summary.calls, summary.total, summary.by_step), (3, 12, {"reduce": 3}))
        self.assertIn("0.0120", trace_page.markdown(trace, (3, 5)))
        self.assertEqual(trace_page.page(trace, (3, 5)).count("<caption>"), 2)

    def test_machines_are_aligned_by_their_wall_clocks(self):
        trace = self.read(events_of(0), events_of(1, boot="b", offset=700))
        begins = {one.rank: one.spans[0].begin for one in trace.rows if one.name == "calls"}
        self.assertEqual(begins, {0: 1000, 1: 1000})
        self.assertIn("2 machines", trace.notes[0])
        # Processes of one machine have one clock, and what it shows counts.
        trace = self.read(events_of(0), events_of(1, offset=700))
        begins = {one.rank: one.spans[0].begin for one in trace.rows if one.name == "calls"}
        self.assertEqual((begins, trace.notes), ({0: 1000, 1: 1700}, []))

    def test_machines_are_aligned_by_their_messages(self):
        """Rank 1's clock is 700 us ahead of rank 0's, its wall clock is wrong, and messages take 10 us."""
        def ends(rank: int, boot: str, offset: int, unix: int) -> list[dict]:
            events = [clock(rank, boot, 1000 + offset, unix), row(rank, 0, rank, "calls"),
                      row(rank, 2, rank, "exchange 1"),
                      span(rank, 0, "allreduce", "call", 1000 + offset, 1100 + offset)]
            for call, late in enumerate((0, 30, 5)):
                sent = 1000 + 20 * call + 3 * rank + offset
                arrived = 1000 + 20 * call + 3 * (1 - rank) + 10 + late + offset
                for name, at in (("send", sent), ("receive", arrived)):
                    begin, end = message(rank, 2, f"{name}{call}", at, at + 1, call=call, exchange=1, segment=0,
                                         peer=1 - rank)
                    events += [begin | {"name": name}, end | {"name": name}]
            return events
        trace = self.read(ends(0, "a", 0, 5000), ends(1, "b", 700, 9000))
        begins = {one.rank: one.spans[0].begin for one in trace.rows if one.name == "calls"}
        self.assertEqual(begins, {0: 1000, 1: 1000})
        self.assertEqual(trace.notes, ["times of 2 machines are aligned by their messages, to within 10.0 us"])

    def test_reads_what_a_killed_process_leaves_and_what_others_write(self):
        events = events_of(0)
        lines = ",\n".join(json.dumps(event) for event in events)
        cut = self.read(f"[\n{lines[:-30]}")
        self.assertEqual(len(cut.rows), 2)
        self.assertIn("is cut short", cut.notes[0])
        self.assertEqual(len(self.read({"traceEvents": events}).rows), 2)

    def test_tells_of_dropped_events(self):
        dropped = {"name": "events dropped", "ph": "i", "pid": 0, "tid": 0, "ts": 1, "args": {"count": 12}}
        self.assertIn("lacks 12 events", self.read([*events_of(0), dropped]).notes[0])

    def test_says_what_is_wrong_with_a_file(self):
        call = span(0, 0, "allreduce", "call", 0, 1)
        for text, events in {
                "is not JSON": "no trace", "a list of events is expected": "{}", "it names no rank": [],
                "event 0: has no member 'ph'": [{}], "event 0: is no object": [1],
                "is on a row that no event names": [call],
                "event 1.ts: \"x\" is no number": [row(0, 0, 0, "calls"), call | {"ts": "x"}],
                "event 1.args: has no member 'call'": [row(0, 0, 0, "calls"), call | {"args": {}}],
                "ends a message that did not begin": [row(0, 2, 0, "exchange 1"), message(0, 2, "1", 0, 1)[1]]}.items():
            with self.subTest(text=text), self.assertRaisesRegex(Malformed, re.escape(text)):
                self.read(events)

    def test_draws_each_span_where_it_is(self):
        trace = self.read(events_of(0), events_of(1))
        chart = trace_chart.TraceChart(trace.rows, 1000, 1100)
        svg = chart.svg()
        self.assertEqual(chart.span_count(), 2 * 7)
        self.assertEqual(svg.count("<rect"), 2 * 7)
        left, width = trace_chart.LEFT, trace_chart.PLOT
        for name, begin, end in (("t-call", 0, 1), ("t-compress", 0.1, 0.3), ("t-wait", 0.3, 0.7)):
            box = re.search(rf'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="[\d.]+" class="{name}"', svg)
            self.assertAlmostEqual(float(box[1]), left + begin * width, delta=0.02)
            self.assertAlmostEqual(float(box[2]), (end - begin) * width, delta=0.02)
        self.assertIn('class="peer">rank 1</text>', svg)
        self.assertEqual(svg.count('class="call">0: allreduce, sign</text>'), 2)
        # Messages that overlap are in lanes of their own, below their exchange.
        tops = {float(top) for top in re.findall(r'y="([\d.]+)" width="[\d.]+" height="4" class="t-receive"', svg)}
        self.assertEqual(len(tops), 4)

    def test_draws_the_calls_asked_for(self):
        events = [row(0, 0, 0, "calls"), *(span(0, 0, "allreduce", "call", 10 * n, 10 * n + 5, call=n)
                                           for n in range(8))]
        # A barrier takes less time than the calls before it. Sends and receives have numbers of their own.
        events.append(span(0, 0, "barrier", "call", 100, 102, call=8, collective="barrier", codec="dense"))
        events.append(span(0, 0, "send/recv", "call", 200, 205, call=2, collective="send/recv"))
        trace = self.read(events)
        self.assertIn("<h2>Calls 5 to 7: allreduce, sign</h2>", trace_page.page(trace, None))
        page = trace_page.page(trace, (2, 2))
        self.assertIn("<h2>Call 2: allreduce, sign</h2>", page)
        self.assertIn("<h2>Calls 7 to 8</h2>", trace_page.page(trace, (7, 8)))
        self.assertEqual(page.count('class="t-call"'), 1 + 1)  # the legend has one
        with self.assertRaisesRegex(Malformed, "no call from 9 to 9"):
            trace_page.page(trace, (9, 9))

    def test_calls_that_follow_each_other_are_drawn(self):
        self.assertEqual(trace_summary.last_run({1, 2, 3, 4, 7, 8, 10}, 3), (2, 4))
        self.assertEqual(trace_summary.last_run({1, 2, 7, 8, 10}, 3), (7, 8))
        self.assertEqual(trace_summary.last_run({1, 3}, 3), (3, 3))
        self.assertEqual(trace_summary.last_run({1, 2, 3, 6, 7}, 2), (6, 7))
        # Checks of a program, after its loop, lie between other calls.
        events = [row(0, 0, 0, "calls"),
                  *(span(0, 0, "allreduce", "call", 10 * n, 10 * n + 5, call=n) for n in (0, 1, 2, 3, 5, 7)),
                  *(span(0, 0, "barrier", "call", 10 * n, 10 * n + 5, call=n, collective="barrier")
                    for n in (4, 6, 8))]
        self.assertEqual(trace_summary.last_calls(self.read(events), 3), (1, 3))

    def test_the_legend_names_what_is_drawn(self):
        page = trace_page.page(self.read(events_of(0)), None)
        legend = page[page.index('class="legend"'):page.index('class="trace"')]
        for text, is_drawn in {"compress": True, "reduce": False, "message received": True,
                               "message sent": False, "enqueuing on a stream": False}.items():
            self.assertEqual(f"</svg>{text}</li>" in legend, is_drawn, text)

    def test_calls_are_those_of_the_communicator_with_the_most(self):
        other = row(0, 128, 0, "enqueuing")
        other["args"]["communicator"] = "0000ffff"
        events = [row(0, 0, 0, "calls"), *(span(0, 0, "allreduce", "call", 10 * n, 10 * n + 5, call=n)
                                           for n in range(8)),
                  other, span(0, 128, "allreduce", "enqueue", 21, 22, call=7),
                  span(0, 128, "allreduce", "enqueue", 500, 510, call=2)]
        trace = self.read(events)
        self.assertEqual(trace_summary.window_of(trace, (2, 3)), (20, 35))
        page = trace_page.page(trace, (2, 3))
        self.assertEqual(page.count('class="t-enqueue"'), 1 + 1)
        self.assertIn('class="rank">rank 0: enqueuing</text>', page)

    def test_a_page_has_a_limit(self):
        events = [row(0, 0, 0, "calls"), *(span(0, 0, "decode", "compute", n, n + 0.5) for n in range(20_001))]
        with self.assertRaisesRegex(Malformed, "give fewer with --calls"):
            trace_page.page(self.read(events), None)

    def run_report(self, *arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([report_input.REPORT, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              check=False, cwd=self.folder)

    def test_command_line(self):
        file = self.write("trace.json", events_of(0))
        result = self.run_report("--trace", file, "--markdown", "--html", "out.html", "--calls", "0:0")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("| rank |", result.stdout)
        self.assertTrue((self.folder / "out.html").read_text().startswith("<!DOCTYPE html>"))
        for text, arguments in {"--calls is for traces": [file, "--markdown", "--calls", "1"],
                                "is no number of a call": ["--trace", file, "--markdown", "--calls", "2:1"],
                                "not for traces": ["--trace", file, "--update", "PAGE.md"]}.items():
            result = self.run_report(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(text, result.stderr)

    def test_a_sweep_of_processes(self):
        if SWEEP is None:
            self.skipTest("no sweep was given")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEBIT_")}
        command = [SWEEP, "-b", "64K", "-e", "64K", "-n", "3", "--mode", "ef", "--procs", "3"]
        refused = subprocess.run(command, env=environment | {"ONEBIT_TRACE": str(self.folder / "all.json")},
                                 capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("put %r, the rank, or %p, the process id, into the name", refused.stderr)
        subprocess.run(command, env=environment | {"ONEBIT_TRACE": str(self.folder / "trace.%r.json")}, timeout=60,
                       capture_output=True, check=True)
        files = sorted(self.folder.glob("trace.*.json"))
        self.assertEqual([file.name for file in files], [f"trace.{rank}.json" for rank in range(3)])
        result = self.run_report("--trace", *files, "--markdown", "--html", "out.html")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in result.stdout.splitlines()
                if line.startswith("| allreduce, sign, ef")]
        self.assertEqual(rows, [["allreduce, sign, ef", str(rank)] for rank in range(3)])
        page = (self.folder / "out.html").read_text()
        for rank in range(3):
            self.assertIn(f'class="rank">rank {rank}</text>', page)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        SWEEP = sys.argv.pop(1)
    unittest.main()
