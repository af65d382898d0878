# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page of perf/report as text: well-formed, self-contained, complete, and safe with any input."""

import html.parser
import math
import re
import unittest

import report_input

report_input.need_matplotlib()

# pylint: disable=wrong-import-position
from matplotlib.figure import Figure
from reporting import drawing, group_charts, markdown, page, units
from reporting.page import POLICY
from reporting.systems import SYSTEMS

VOID = {"meta", "br"}
CHARTS = 4 + 2  # of four groups; break-even and bytes on the wire


class Reader(html.parser.HTMLParser):
    """Collects elements, and finds tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.problems: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"{name} is not closed" for name in self.open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.problems.append(f"{tag} has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"{tag} is closed at {self.getpos()}, but another is open")

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, name: str, css_class: str | None = None) -> list[dict]:
        return [attributes for tag, attributes in self.elements if tag == name and
                (css_class is None or css_class in (attributes.get("class") or "").split())]


def page_of(document: dict) -> str:
    return page.page(report_input.figures_of(document))


def luminance(colour: str) -> float:
    """Contrast as WCAG 2 defines it."""
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = page_of(report_input.document())
        cls.reader = Reader(cls.text)

    def test_is_well_formed(self):
        self.assertEqual(self.reader.problems, [])
        names = [attributes["id"] for _, attributes in self.reader.elements if "id" in attributes]
        self.assertEqual(sorted(names), sorted(set(names)))
        for link in self.reader.all("a"):
            self.assertIn(link["href"].removeprefix("#"), names)

    def test_has_every_chart_with_title_and_description(self):
        charts = self.reader.all("svg", "chart")
        self.assertEqual(len(charts), CHARTS)
        names = {attributes.get("id") for _, attributes in self.reader.elements}
        for chart in charts:
            self.assertEqual(chart["role"], "img")
            self.assertEqual(set(chart["aria-labelledby"].split()) - names, set())

    def test_has_a_point_for_each_time(self):
        # 69 rows have times; each is a point in three charts. Two break-evens of 4 hosts, one of 2. Legends of the
        # groups have a point for each system, the others one for each line.
        points = len(self.reader.all("use")) - self.ticks()
        counted = sum(bool(row["wire_bytes"]) + bool(row["link_bytes"]) for row in most_sent_rows())
        legends = sum(len(group.systems) for group in report_input.figures_of(report_input.document()).groups) + 2 + 4
        self.assertEqual(points, 3 * 69 + 3 + counted + legends)

    def ticks(self) -> int:
        """Each has its text: of all texts those on axes, which are quiet."""
        return sum("var(--quiet)" in text["style"] for text in self.reader.all("text"))

    def test_loads_and_runs_nothing(self):
        self.assertIn(POLICY, [meta.get("content") for meta in self.reader.all("meta")])
        forbidden = {"script", "link", "img", "iframe", "object", "embed", "image", "base", "form"}
        self.assertEqual({tag for tag, _ in self.reader.elements} & forbidden, set())
        for tag, attributes in self.reader.elements:
            for name in attributes:
                self.assertNotRegex(name, "^(on.*|src)$", tag)
            if "href" in attributes:
                self.assertEqual(attributes["href"][0], "#", tag)
        self.assertNotRegex(self.text, r"https?:|@import|url\((?!#)")

    def test_says_where_one_bit_loses(self):
        self.assertIn("Slower at the largest size measured: shared memory with 4 processes.", self.text)
        self.assertIn("Slower below some size: 1 Gbit/s with 2, 4 hosts; 10 Gbit/s with 4 hosts.", self.text)
        self.assertRegex(self.text, r'class="loss-1" title="45.0 ms against 39.0 ms of onebit dense">0.87x<')

    def test_marks_differences_within_the_noise(self):
        self.assertEqual(self.text.count(">≈"), 0)
        document = report_input.document()
        for row in document["results"]:
            if row["link"] == "shm" and row["system"] == "onebit-ef":
                row["time_us_min"] = row["time_us"] * 0.8  # below the best dense system's slowest
            if row["rate"] == "10gbit" and row["system"] == "onebit-ef" and row["size"] == 4 << 20:
                row["time_us_max"] = row["time_us"] * 3  # above that system's fastest
        text = page_of(document)
        self.assertIn(">≈0.87x<", text)
        self.assertIn(">≈2.00x<", text)

    def test_one_repetition_is_no_certainty(self):
        once = {"repetitions": 1}
        for system in ("onebit-ef", "onebit-dense"):
            document = report_input.document()
            for row in document["results"]:
                if row["link"] == "shm" and row["size"] == 64 << 20 and row["system"] == system:
                    row |= once | {"time_us_min": row["time_us"], "time_us_max": row["time_us"]}
            text = page_of(document)
            self.assertIn(">≈0.87x<", text)
            self.assertEqual(text.count(">≈"), 2)  # also in the summary
            self.assertEqual(text.count("<small>measured once</small>"), 1)
            self.assertIn("(measured once)", text)

    def test_what_was_not_tried_is_not_called_failed(self):
        document = report_input.document()
        for row in document["results"][:2]:
            row |= {"error": "left out: slow", "state": "left out"}
        text = page_of(document)
        self.assertIn('title="left out: slow" class="gap">not measured<', text)
        self.assertIn("Not measured: Open MPI at 16 KiB, 256 KiB: <code>left out: slow</code>", text)

    def test_systems_with_one_reason_share_a_line(self):
        document = report_input.document()
        for row in document["results"]:
            if (row["rate"], row["hosts"], row["size"]) == ("1gbit", 4, 64 << 20) and row["system"] != "mpich":
                row |= {"error": "left out: slow"}
        line = "Not measured: Open MPI, Open MPI ring, Gloo, "
        self.assertIn(f"<li>{line}", page_of(document))
        text = markdown.markdown(report_input.figures_of(document))
        self.assertEqual(text.count("Not measured: "), 1)
        self.assertIn(f"* {line}", text)

    def test_marks_rows_with_failed_repetitions(self):
        self.assertNotIn("†<", self.text)
        document = report_input.document()
        document["results"][0] |= {"failed_repetitions": 1, "failure": "no end after 9 s"}
        text = page_of(document)
        self.assertEqual(text.count("†<"), 1)
        self.assertIn("<li>A repetition failed of Open MPI at 16 KiB: <code>no end after 9 s</code>", text)
        self.assertIn("* A repetition failed of Open MPI, 1 Gbit/s, 4 hosts, 16 KiB: no end after 9 s\n",
                      markdown.markdown(report_input.figures_of(document)))

    def test_failures_are_gaps_with_their_reason(self):
        self.assertIn("No time of Gloo at 64 MiB: <code>ended with status 1</code>", self.text)
        self.assertIn("<code>2 wrong elements in its result</code>", self.text)
        # In the line of dense on 2 hosts, the points on both sides of the wrong one are not joined.
        figures = report_input.figures_of(report_input.document())
        group = report_input.group_of(figures, "lab", 10**9, 2)
        panel = Figure().subplots()
        group_charts._measured(panel, group, group.systems, lambda _, us: us)  # pylint: disable=protected-access
        dense, = (line.get_ydata() for line in panel.get_lines() if line.get_label() == "onebit dense")
        self.assertEqual([math.isnan(us) for us in dense], [False, False, True, False])

    def test_limits_are_drawn_near_what_was_measured(self):
        figures = report_input.figures_of(report_input.document())
        group = report_input.group_of(figures, "lab", 10**9, 4)
        heights = group_charts._measured(Figure().subplots(), group, group.systems,  # pylint: disable=protected-access
                                         lambda _, us: us)
        times = [row.times for system in group.systems for row in group.timed_rows(system)]
        least, most = min(time.least for time in times), max(time.most for time in times)
        self.assertTrue({least, most} <= set(heights))
        self.assertTrue(least / 4 <= min(heights) and max(heights) <= most * 4, heights)

    def test_commands_are_listed_by_kind_of_link(self):
        self.assertNotIn("<h4>", self.text)  # of a file that does not tell them apart
        document = report_input.document()
        document["commands"] = {"shm": {"gloo": "onebit_run -n 4"}, "lab": {"gloo": "perf/lab run"}}
        text = page_of(document)
        for head, command in (("On shared memory", "onebit_run -n 4"),
                              ("On the lab&#x27;s network", "perf/lab run")):
            self.assertIn(f"<h4>{head}</h4><dl><dt>gloo</dt><dd><code>{command}</code>", text)

    def test_names_machine_commit_and_commands(self):
        for text in ("Synthetic processor", "0000000", "2026-01-01", "GCC 12.2.0", "0.0-synthetic",
                     "40.0 GB/s", "allreduce_gloo -b 16K"):
            self.assertIn(text, self.text)


def most_sent_rows() -> list[dict]:
    """One row of one bit for each number of hosts and size: what the chart of bytes shows."""
    rows = {}
    for row in report_input.document()["results"]:
        if row["system"] == "onebit-ef":
            best = rows.setdefault((row["hosts"], row["size"]), {"wire_bytes": 0, "link_bytes": 0})
            for key in best:
                best[key] = max(best[key], row[key] or 0)
    return list(rows.values())


class InputTest(unittest.TestCase):
    """Pages of unusual figures."""

    def test_every_text_is_escaped(self):
        evil = "</style><script>alert('x')</script><b title=\"'&\x00\x1b"
        document = report_input.document()
        for key in ("cpu", "kernel", "date", "commit", "compiler"):
            document["machine"][key] = key + evil
        document["results"][0] |= {"error": evil, "time_us": None}
        document["commands"] = {evil: evil}
        text = page_of(document)
        reader = Reader(text)
        self.assertEqual(reader.problems, [])
        self.assertEqual(reader.all("script") + reader.all("b"), [])
        self.assertEqual(len(reader.all("svg", "chart")), CHARTS)
        self.assertIn(evil.replace("\x00", "\ufffd").replace("\x1b", "\ufffd"),
                      [cell.get("title") for cell in reader.all("td", "gap")])
        self.assertEqual(re.findall(r"[\x00-\x08\x0b-\x1f]", text), [])
        self.assertGreaterEqual("".join(reader.texts).count("<script>alert('x')</script>"), 8)

    def charts(self, keep) -> int:
        document = report_input.document()
        document["results"] = [row for row in document["results"] if keep(row)]
        reader = Reader(page_of(document))
        self.assertEqual(reader.problems, [])
        return len(reader.all("svg", "chart"))

    def test_any_part_may_be_missing(self):
        self.assertEqual(self.charts(lambda row: row["system"] != "onebit-ef"), 4)
        self.assertEqual(self.charts(lambda row: row["system"] == "onebit-ef"), 4 + 1)
        self.assertEqual(self.charts(lambda row: row["link"] == "shm"), 1 + 1)
        self.assertEqual(self.charts(lambda row: row["size"] == 16384), 4 + 1)
        self.assertEqual(self.charts(lambda row: row["hosts"] == 2), 1 + 2)

    def test_several_ranks_on_a_host(self):
        document = report_input.document()
        shared = report_input.on_shared_hosts(document, 4)
        shared["results"] = [row | {"levels": 2} for row in shared["results"]]
        text = page.page(report_input.figures_of(document, shared))
        reader = Reader(text)
        self.assertEqual(reader.problems, [])
        names = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(len(reader.all("svg", "chart")), CHARTS + 3)
        for part in ("<h3>4 hosts x 4 ranks</h3>", "<caption>4 hosts x 4 ranks</caption>",
                     "<caption>4 hosts, or processes on shared memory</caption>",
                     "1 Gbit/s with 2, 4 hosts; 1 Gbit/s with 2, 4 hosts x 4 ranks; ", ">4 hosts x 4 ranks, on the link</text>",
                     "<caption>Sent by the busiest host for one call on 4 hosts x 4 ranks, in tensors.",
                     '<th scope="col">levels</th>', "<td>2</td></tr>"):
            self.assertIn(part, text)
        # What a rank's transport counts is not what its host's link carries; the counters of links are.
        rows = {head: cells for head, cells in re.findall(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', text)}
        self.assertTrue(rows["4 ranks"].endswith("<td>1.010</td>"), rows)
        self.assertNotIn("<td>1.010</td>", rows["4 hosts x 4 ranks, on the link"])
        self.assertTrue(rows["4 hosts x 4 ranks, on the link"].endswith("<td>1.062</td>"), rows)

    def test_one_row_makes_a_page(self):
        document = report_input.document()
        document["results"] = document["results"][:1]
        self.assertEqual(len(Reader(page_of(document)).all("svg", "chart")), 1)

    def test_failures_alone_make_a_page(self):
        document = report_input.document()
        for row in document["results"]:
            row["error"] = "no such program"
        text = page_of(document)
        self.assertEqual(Reader(text).all("svg", "chart"), [])
        self.assertEqual(text.count("No system has a time here."), 4)
        self.assertIn("No time of Gloo, onebit dense, onebit 1-bit at 16 KiB, 256 KiB, 4 MiB, 64 MiB: "
                      "<code>no such program</code>", text)

    def test_caches_take_limits_away(self):
        document = report_input.document()
        document["machine"]["cache_bytes"] = 32 << 20
        text = page_of(document)
        self.assertIn("Tensors that the caches (32 MiB) hold have no limit of memory.", text)
        document["results"] = [row for row in document["results"]
                               if row["link"] == "shm" and row["size"] <= 256 << 10]
        self.assertIn(">share of the limit</text>", text)
        self.assertNotIn(">share of the limit</text>", page_of(document))

    def test_the_most_that_was_sent_counts(self):
        document = report_input.document()
        for row in document["results"]:
            if row["rate"] == "10gbit" and row["size"] == 4 << 20 and row["wire_bytes"]:
                row["wire_bytes"] = 2 * (4 << 20) * 3 // 4 // 16  # two bits for each element and exchange
        self.assertIn("<td>2.000</td>", page_of(document))


class AxesTest(unittest.TestCase):
    def test_ticks_are_few_and_inside(self):
        for low, high in [(1.0, 3.0), (1e-3, 5.0), (0.9, 1e8), (700.0, 1e5), (1e3, 1.2e3), (1.0, 1e15), (64.0, 64.0)]:
            for scale in (drawing.sizes, lambda *arguments: drawing.decimals(*arguments, units.short)):
                panel = Figure().subplots()
                scale(panel, "y", [low, high])
                least, most = panel.get_ylim()
                self.assertTrue(least < low and high < most, (low, high))
                ticks = [tick for tick in panel.get_yticks() if least <= tick <= most]
                self.assertTrue(1 <= len(ticks) <= 9, (low, high, ticks))

    def test_sizes_are_named_in_powers_of_two(self):
        panel = Figure().subplots()
        drawing.sizes(panel, "x", [1024.0, float(1 << 22)])
        self.assertEqual([text.get_text() for text in panel.get_xticklabels()],
                         ["1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"])


class ColoursTest(unittest.TestCase):
    def test_lines_and_texts_stand_out_in_both_themes(self):
        style = (report_input.ROOT / "perf" / "studies" / "reporting" / "style.css").read_text()
        themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
                  for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
        self.assertEqual(len(themes), 2)
        for theme in themes:
            for name in ("ink", "quiet"):
                self.assertGreaterEqual(contrast(theme[name], theme["surface"]), 4.5, name)
                self.assertGreaterEqual(contrast(theme[name], theme["shade"]), 4.5, name)
            for name in ("blue", "sky", "green", "orange", "pink", "grey", "red", "violet"):
                self.assertGreaterEqual(contrast(theme[name], theme["surface"]), 3, name)

    def test_every_system_has_a_colour_and_a_marker_of_its_own(self):
        self.assertEqual({system.name for system in SYSTEMS}, set(group_charts.STYLES))
        self.assertEqual({colour for colour, _ in group_charts.STYLES.values()} - drawing.COLOURS.keys(), set())
        markers = {(marker, name in group_charts.HOLLOW) for name, (_, marker) in group_charts.STYLES.items()}
        self.assertEqual(len(markers), len(SYSTEMS))


if __name__ == "__main__":
    unittest.main()
