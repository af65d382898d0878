# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report: one HTML file with its style and charts inside, without any script."""

from reporting import explanations
from reporting.comparison import Machine
from reporting.drawing import STYLE
from reporting.figure_table import figure_table, problem_list
from reporting.figures import Figures, GroupFigures
from reporting.group_charts import group_chart
from reporting.link_load import link_load_rows, link_load_text
from reporting.markup import Markup, joined, tag
from reporting.overview import break_even_table, losses, speedup_table, summary_tables
from reporting.summary_charts import break_even_chart, wire_chart, wire_lines, wire_name
from reporting.units import NO_FIGURE, digits, group_text, hosts_text, link_text, size_text

TITLE = "onebit against other allreduces"
# Nothing may be loaded or run, whatever a text of the input contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def paragraph(text: str) -> Markup:
    return tag("p", text)


def definitions(entries: dict[str, "str | Markup"], css_class: str | None = None) -> Markup:
    return tag("dl", *(joined(tag("dt", term), tag("dd", text)) for term, text in entries.items()),
               class_=css_class)


def figure(chart: Markup | None, caption: str) -> Markup:
    return tag("figure", tag("figcaption", caption), chart) if chart else joined()


def group_section(group: GroupFigures, is_open: bool) -> Markup:
    layout = group.group.layout
    several = f"x{layout.ranks_per_host}" if layout.ranks_per_host > 1 else ""
    name = f"{group.group.link}-{group.group.bits_per_second or 0}-{layout.hosts}{several}"
    charts = group_chart(group, name)
    table = tag("details", tag("summary", f"Figures: {group_text(group.group)}"), figure_table(group))
    return tag("details", tag("summary", tag("h3", hosts_text(group.group))),
               tag("div", charts, class_="wide charts") if charts else paragraph("No system has a time here."),
               problem_list(group), table, open=is_open, class_="group")


def anchor(link: tuple[str, int | None]) -> str:
    return f"{link[0]}-{link[1] or 0}"


def link_section(figures: Figures, link: tuple[str, int | None]) -> Markup:
    """All layouts of ranks; one of them is unfolded."""
    groups = figures.groups_on(link)
    main = next((group for group in groups if group.group.layout in figures.main_layouts()), groups[-1])
    return tag("section", tag("h2", link_text(link)),
               *(group_section(group, group is main) for group in groups), id=anchor(link))


def navigation(figures: Figures) -> Markup:
    targets = {"glance": "At a glance", "reading": "How to read"}
    targets |= {anchor(link): link_text(link) for link in figures.links()}
    targets |= {"wire-bytes": "Bytes on the wire", "limits": "Limits", "method": "How it was measured"}
    return tag("nav", *(tag("a", text, href=f"#{target}") for target, text in targets.items()),
               aria_label="Sections")


def glance_section(figures: Figures) -> Markup:
    chart = break_even_chart(figures)
    return tag("section", tag("h2", "At a glance"), summary_tables(figures), losses(figures),
               tag("h3", "Speed of one bit over the best system in full precision"),
               paragraph(explanations.SPEEDUP), speedup_table(figures),
               tag("h3", "Break-even"), paragraph(explanations.BREAK_EVEN),
               tag("div", figure(chart, "Lower is better"), tag("div", break_even_table(figures), class_="wide"),
                   class_="beside"),
               id="glance")


def reading_section() -> Markup:
    return tag("section", tag("h2", "How to read the charts"), definitions(explanations.READING),
               id="reading")


def link_load_tables(figures: Figures) -> Markup:
    """Where ranks share the links of hosts: one table for each number of ranks per host."""
    tables = []
    for layout in figures.main_layouts():
        head, *rows = link_load_rows(figures, layout) or [[]]
        if rows:
            tables.append(tag("div", tag(
                "table", tag("caption", f"{link_load_text(layout)}."),
                tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))),
                tag("tbody", *(tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
                               for row in rows))), class_="wide"))
    return joined(*tables)


def wire_section(figures: Figures) -> Markup:
    head, chart = tag("h2", "Bytes on the wire"), wire_chart(figures)
    loads = link_load_tables(figures)
    if chart is None:
        return tag("section", head, loads or paragraph("No system counted its bytes."), id="wire-bytes")
    caption = "Bits per element and exchange (lower is better, full precision is 32)"
    return tag("section", head, tag("div", figure(chart, caption), paragraph(explanations.WIRE), class_="beside"),
               wire_table(figures), loads, id="wire-bytes")


def wire_table(figures: Figures) -> Markup:
    """What the chart of bytes shows."""
    lines = wire_lines(figures)
    sizes = sorted({size for bits in lines.values() for size in bits})
    rows = [tag("tr", tag("th", wire_name(*key), scope="row"),
                *(tag("td", digits(bits[size], 4) if size in bits else NO_FIGURE) for size in sizes))
            for key, bits in lines.items()]
    heads = tag("tr", *(tag("th", name, scope="col") for name in ["ranks", *map(size_text, sizes)]))
    return tag("div", tag("table", tag("caption", "Bits per element and exchange."), tag("thead", heads),
                          tag("tbody", *rows)), class_="wide")


def limits_section(figures: Figures) -> Markup:
    memory = explanations.limit_of_memory(**figures.limit_of_machine)
    return tag("section", tag("h2", "Limits"), paragraph(explanations.LIMIT),
               tag("ul", tag("li", explanations.LIMIT_WIRE), tag("li", memory)),
               paragraph(explanations.LIMIT_IN_LAB), id="limits")


def machine_entries(machine: Machine) -> dict[str, str]:
    return {"processor": f"{machine.cpu}, {machine.cores} cores", "kernel": machine.kernel,
            "compiler": machine.compiler, "date": machine.date, "commit": machine.commit,
            "memory copy": f"{digits(machine.copy_gbps)} GB/s by one core, reads plus writes"}


COMMAND_HEADS = {"shm": "On shared memory", "lab": "On the lab's network"}


def command_lists(commands: dict[str | None, dict[str, str]]) -> Markup:
    """One for each kind of link, where the file tells them apart."""
    lists = [joined(tag("h4", COMMAND_HEADS.get(kind, kind)) if kind else joined(),
                    definitions({name: tag("code", command) for name, command in of_kind.items()}))
             for kind, of_kind in commands.items() if of_kind]
    if not lists:
        return paragraph("None were recorded.")
    return joined(paragraph("One example for each system, to be run in the root of the checkout."), *lists)


def method_section(figures: Figures) -> Markup:
    return tag("section", tag("h2", "How it was measured"), paragraph(explanations.METHOD),
               paragraph(explanations.CHECKED),
               *(definitions(machine_entries(machine)) for machine in figures.comparison.machines),
               tag("h3", "Commands"), command_lists(figures.comparison.commands), id="method")


def page_head() -> Markup:
    return tag("head", tag("meta", charset="utf-8"),
               tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
               tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
               tag("meta", name="color-scheme", content="light dark"), tag("title", TITLE),
               tag("style", Markup(STYLE.read_text(encoding="utf-8"))))


def page(figures: Figures) -> str:
    """The whole file."""
    machine = figures.comparison.machines[0]
    header = tag("header", tag("h1", TITLE), paragraph(
        f"Allreduce of fp32, time of one call. {machine.cpu}, {machine.cores} cores, {machine.date}, "
        f"commit {machine.commit}."), navigation(figures))
    main = tag("main", glance_section(figures), reading_section(),
               *(link_section(figures, link) for link in figures.links()),
               wire_section(figures), limits_section(figures), method_section(figures))
    return f"<!DOCTYPE html>\n{tag('html', page_head(), tag('body', header, main), lang='en')}\n"
