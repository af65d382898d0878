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
    links: list[LinkCounts]
    library: list[LibraryCount]  # empty: the program did not say
    status: int

    def as_json(self) -> dict:
        return {
            "hosts": len(self.links),
            "rate": self.rate.text,
            "rate_bits_per_second": self.rate.bits_per_second,
            "links": [{"host": host} | dataclasses.asdict(link)
                      for host, link in enumerate(self.links)],
            "library": [dataclasses.asdict(count) for count in self.library] or None,
            "status": self.status,
        }

    def table(self) -> str:
        """The table. Rank r runs on host r."""
        library = {count.rank: count.sent_bytes for count in self.library}
        rows = [COLUMNS]
        for host, link in enumerate(self.links):
            ours = library.get(host)
            above = f"{100 * (link.sent_bytes / ours - 1):+.2f} %" if ours else "-"
            rows.append([str(host), f"{link.sent_bytes} B", f"{link.received_bytes} B",
                         str(link.sent_packets), str(link.retransmitted_segments),
                         "-" if ours is None else f"{ours} B", above])
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        return "\n".join("# " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths))
                         for row in rows)


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
        print(f"# {len(result.links)} hosts, {result.rate.text} each way; frames on the links from the "
              f"start to the end of the command\n{result.table()}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it
    if json_file is not None:
        json_file.write(result.as_json())
