# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report: one HTML file with its style and charts inside, without any script."""

import pathlib

from reporting import limits
from reporting.figure_table import figure_table, problem_list
from reporting.figures import Figures, GroupFigures
from reporting.group_charts import bandwidth_chart, share_chart, time_chart
from reporting.line_chart import marker_shape
from reporting.markup import Markup, joined, tag
from reporting.overview import break_even_table, speedup_table, verdicts
from reporting.summary_charts import break_even_chart, hosts_styles, wire_chart
from reporting.systems import System
from reporting.units import digits, group_text, hosts_text, link_text

TITLE = "onebit against other allreduces"
# Nothing may be loaded or run, whatever a text of the input contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def key(css_class: str, marker: str, label: str) -> Markup:
    """One entry of a legend: a piece of the line with its marker, and its name."""
    sample = [tag("polyline", points="0,7 30,7")]
    if marker:
        sample.append(marker_shape(marker, 15.0, 7.0))
    return tag("li", tag("svg", tag("g", *sample, class_=f"line {css_class}"), viewBox="0 0 30 14",
                         class_="key", aria_hidden="true"), label)


def legend(systems: list[System]) -> Markup:
    return tag("ul", *(key(f"s-{system.name}", system.marker, system.label) for system in systems),
               key("limit-dense", "", "limit, full precision"), key("limit-one-bit", "", "limit, one bit"),
               class_="legend")


def hosts_legend(figures: Figures, *formulas: Markup) -> Markup:
    return tag("ul", *(key(css_class, marker, f"{hosts} hosts")
                       for hosts, (css_class, marker) in hosts_styles(figures).items()),
               *formulas, class_="legend")


def figure(chart: Markup | None, caption: str) -> Markup:
    return tag("figure", tag("figcaption", caption), chart) if chart else joined()


def group_section(group: GroupFigures, is_open: bool) -> Markup:
    name = f"{group.group.link}-{group.group.bits_per_second or 0}-{group.group.hosts}"
    charts = joined(figure(time_chart(group, name), "Time (lower is better)"),
                    figure(bandwidth_chart(group, name), "Bus bandwidth (higher is better)"),
                    figure(share_chart(group, name), "Share of the limit (100 % cannot be beaten)"))
    if not charts:
        charts = tag("p", "No system has a time here.")
    return tag("details", tag("summary", tag("h3", hosts_text(group.group))),
               tag("div", charts, class_="charts"), problem_list(group),
               tag("details", tag("summary", f"Figures: {group_text(group.group)}"), figure_table(group)),
               open=is_open, class_="group")


def link_section(figures: Figures, link: tuple[str, int | None]) -> Markup:
    groups = figures.groups_on(link)
    main = next((group for group in groups if group.group.hosts == figures.main_hosts()), groups[-1])
    systems = [system for system in figures.systems
               if any(system in group.systems for group in groups)]
    return tag("section", tag("h2", link_text(link)), legend(systems),
               *(group_section(group, group is main) for group in groups), id=anchor(link))


def anchor(link: tuple[str, int | None]) -> str:
    return f"{link[0]}-{link[1] or 0}"


def navigation(figures: Figures) -> Markup:
    links = [("glance", "At a glance"), ("reading", "How to read")]
    links += [(anchor(link), link_text(link)) for link in figures.links()]
    links += [("wire-bytes", "Bytes on the wire"), ("limits", "Limits"), ("how", "How it was measured")]
    return tag("nav", *(tag("a", text, href=f"#{target}") for target, text in links),
               aria_label="Sections")


def glance_section(figures: Figures) -> Markup:
    chart = break_even_chart(figures)
    return tag(
        "section", tag("h2", "At a glance"), verdicts(figures),
        tag("h3", "Speed of one bit over the best system in full precision"),
        tag("p", "Above 1x one bit is faster (blue), below 1x it is slower (orange). The best system is chosen "
            "anew for every cell, onebit's own dense allreduce included. ≈: the repetitions of the "
            "two overlap, so the sign of the difference is not certain. Point at a cell for the times."),
        speedup_table(figures),
        tag("h3", "Break-even"),
        tag("p", "The size of the tensor from which on one bit is faster than the best dense system, up to "
            "the largest size measured. Between two measured sizes it is where the lines of both cross."),
        tag("div", tag("div", hosts_legend(figures), figure(chart, "Lower is better")) if chart else joined(),
            tag("div", break_even_table(figures), class_="wide"), class_="beside"),
        id="glance")


READING = (
    ("Time", "of one call against the size of the tensor, both axes logarithmic. Where calls wait for messages "
     "the lines are flat; where they wait for bytes they rise with the size. Points are medians of the "
     "repetitions, vertical bars go from the fastest to the slowest repetition. The dashed lines are "
     "limits, one for full precision and one for one bit."),
    ("Bus bandwidth", "is nccl-tests' busbw: 2(n-1)/n times the size over the time. For one bit the size is that "
     "of the tensor, not of the packets, so that it compares; it may well exceed the speed of the link."),
    ("Share of the limit", "is the limit of a system's own kind over its time. A system in full precision at "
     "100 % fills the link; no better program exists for it, only sending less."),
    ("The vertical line", "stands where one bit breaks even. A gap in a line is a run that failed or gave wrong "
     "results; the reason is given below the charts. Point at a marker for all its figures."),
)


def reading_section() -> Markup:
    return tag("section", tag("h2", "How to read the charts"),
               tag("dl", *(joined(tag("dt", term), tag("dd", text)) for term, text in READING)),
               id="reading")


def wire_section(figures: Figures) -> Markup:
    chart = wire_chart(figures)
    if chart is None:
        return tag("section", tag("h2", "Bytes on the wire"), tag("p", "No system counted its bytes."),
                   id="wire-bytes")
    ideal = limits.BITS_PER_ELEMENT[limits.Kind.ONE_BIT]
    return tag(
        "section", tag("h2", "Bytes on the wire"),
        hosts_legend(figures, key("limit-one-bit", "", f"formula, one bit: {ideal:.4f}"),
                     key("limit-dense", "", "formula, full precision: 32")),
        tag("div", figure(chart, "Bits per element and exchange (lower is better)"), tag(
            "p", "Bits that onebit's transport counted per rank, divided by the elements and by 2(n-1)/n, "
            "so that any number of ranks has the same formula: one bit and a scale of 32 bits for each "
            f"{limits.BLOCK_ELEMENTS} elements. Strong lines: one bit; faint lines: onebit in full precision; "
            "hollow points: what the interface of the busiest host counted, with the headers of TCP/IP. Small "
            "tensors lie above the formula, because every message has a header of 64 bytes, and because "
            "the smallest (8192 elements, unless set otherwise) are sent whole to every rank in a single "
            "exchange, which costs bytes and saves a round of messages."), class_="beside"),
        id="wire-bytes")


def limits_section(figures: Figures) -> Markup:
    machine = figures.limit_of_machine
    cache = machine["cache_bytes"]
    caches = (f"Tensors that the caches ({cache / 2**20:.0f} MiB) hold have no limit of memory." if cache else
              "The size of the caches is not known, so small tensors, which caches hold, have a limit "
              "of memory that could be beaten.")
    return tag(
        "section", tag("h2", "Limits"),
        tag("p", "The limit of a row is the larger of two times, both of which count only what cannot be avoided:"),
        tag("ul",
            tag("li", "Wire: 2(n-1)/n of the tensor must leave each rank, in full precision or as bits and "
                f"scales, in frames of {limits.FRAME_BYTES} bytes for {limits.SEGMENT_BYTES} bytes of payload. "
                "Latency, acknowledgements and headers of messages are left out."),
            tag("li", "Memory: in full precision the input is read and the output written; with one bit the residual "
                "is read and written, too, and so is the server's, 1/n of the tensor. All ranks share this "
                f"machine's {machine['cores']} cores, each of which moves {digits(machine['copy_gbps'])} GB/s "
                f"while it copies. {caches}")),
        tag("p", "In the lab the kernel copies every byte once more on each side, on the same cores that "
            "compress and reduce; on real hosts network cards do. That is not in the limit, so fast links "
            "show shares well below 100 % here."),
        id="limits")


def method_section(figures: Figures) -> Markup:
    parts = []
    for machine in figures.comparison.machines:
        entries = {"processor": f"{machine.cpu}, {machine.cores} cores", "kernel": machine.kernel,
                   "compiler": machine.compiler, "date": machine.date, "commit": machine.commit,
                   "memory copy": f"{digits(machine.copy_gbps)} GB/s by one core, reads plus writes"}
        parts.append(tag("dl", *(joined(tag("dt", term), tag("dd", text))
                                 for term, text in entries.items()), class_="machine"))
    commands = [joined(tag("dt", name), tag("dd", tag("code", command)))
                for name, command in figures.comparison.commands.items()]
    return tag(
        "section", tag("h2", "How it was measured"),
        tag("p", "All systems ran on one machine. Hosts of a network are network namespaces with a shaped "
            "link each; they share the machine's cores, so that compression costs more here than on hosts of "
            "their own. Systems took turns, one repetition each. Times are those of the slowest part only as "
            "far as each tool says: the mean over the ranks, as in nccl-tests."),
        *parts, tag("h3", "Commands"),
        tag("p", "One example for each system."),
        tag("dl", *commands, class_="commands") if commands else tag("p", "None were recorded."), id="how")


def page(figures: Figures) -> str:
    style = (pathlib.Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    machine = figures.comparison.machines[0]
    head = tag(
        "head", tag("meta", charset="utf-8"), tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"), tag("title", TITLE),
        tag("style", Markup(style)))
    body = tag(
        "body", tag("header", tag("h1", TITLE), tag(
            "p", f"Allreduce of fp32, time of one call. {machine.cpu}, {machine.cores} cores, {machine.date}, "
            f"commit {machine.commit}."), navigation(figures)),
        tag("main", glance_section(figures), reading_section(),
            *(link_section(figures, link) for link in figures.links()),
            wire_section(figures), limits_section(figures), method_section(figures)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
