# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The final report: link counters beside the library's, as a table and as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import sys

from ethernet_lab.counters import LinkCounts
from ethernet_lab.errors import UsageError
from ethernet_lab.json_file import JsonFile
from ethernet_lab.output_reader import LibraryCount
from ethernet_lab.rates import Rate

COLUMNS = ["host", "link sent", "link received", "frames sent", "sent again", "library sent",
           "link above library"]


@dataclasses.dataclass(frozen=True)
class JobResult:
    """The result of one command on the lab."""

    rate: Rate
    ranks_per_host: list[int]
    links: list[LinkCounts]
    library: list[LibraryCount]  # empty: the program did not say
    status: int

    def as_json(self) -> dict:
        return {
            "hosts": len(self.links),
            "ranks_per_host": self.ranks_per_host,
            "rate": self.rate.text,
            "rate_bits_per_second": self.rate.bits_per_second,
            "links": [{"host": host} | dataclasses.asdict(link)
                      for host, link in enumerate(self.links)],
            "library": [dataclasses.asdict(count) for count in self.library] or None,
            "status": self.status,
        }

    def table(self) -> str:
        """The table. Ranks are numbered host by host."""
        library = {count.rank: count for count in self.library}
        rows = [COLUMNS]
        first = 0
        for host, (link, ranks) in enumerate(zip(self.links, self.ranks_per_host, strict=True)):
            ours = _sent_from_host([library.get(rank) for rank in range(first, first + ranks)])
            first += ranks
            above = f"{100 * (link.sent_bytes / ours - 1):+.2f} %" if ours else "-"
            rows.append([str(host), f"{link.sent_bytes} B", f"{link.received_bytes} B",
                         str(link.sent_packets), str(link.retransmitted_segments),
                         "-" if ours is None else f"{ours} B", above])
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        return "\n".join("# " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths))
                         for row in rows)


def _sent_from_host(counts: list[LibraryCount | None]) -> int | None:
    """What the library says that these ranks, all those of a host, have sent to other hosts."""
    sent = [count and count.network_bytes for count in counts]
    if None not in sent:
        return sum(sent)
    is_alone = len(counts) == 1  # a rank without others on its host can send only to other hosts
    return counts[0].sent_bytes if is_alone and counts[0] is not None else None


def hosts_text(ranks_per_host: list[int]) -> str:
    """Hosts, and their ranks if any has several."""
    text = f"{len(ranks_per_host)} hosts"
    if max(ranks_per_host) == 1:
        return text
    if len(set(ranks_per_host)) == 1:
        return f"{text} x {ranks_per_host[0]} ranks"
    return f"{text} with {', '.join(map(str, ranks_per_host))} ranks"


def open_json(path: str | None) -> contextlib.AbstractContextManager[JsonFile | None]:
    """Opens the file of --json, if it was given."""
    if path is None:
        return contextlib.nullcontext()
    try:
        return JsonFile(path)
    except OSError as error:
        raise UsageError(f"--json: {error}") from error


def report(result: JobResult, json_file: JsonFile | None) -> None:
    """Prints the table on standard error, because standard output belongs to the program."""
    try:
        print(f"# {hosts_text(result.ranks_per_host)}, {result.rate.text} each way; frames on the links from the "
              f"start to the end of the command\n{result.table()}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it
    if json_file is not None:
        json_file.write(result.as_json())
