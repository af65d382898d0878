# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What passed through the links, as an Ethernet would have carried it.

Segmentation is left to the last moment, as network cards do it, so the interface of a host counts
super-packets with one header each. The queueing discipline in front of it counts the frames into which
they would be cut, header by header (and without preamble, checksum and gap, which Linux never counts).
So these counters are read: sent, at the host's end of its cable; received, at the switch's end.
"""

from __future__ import annotations

import dataclasses
import json

from ethernet_lab import namespaces
from ethernet_lab.network import Network


@dataclasses.dataclass(frozen=True)
class LinkCounts:
    """Counters of the link of one host."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    retransmitted_segments: int  # by TCP on this host

    def __sub__(self, earlier: LinkCounts) -> LinkCounts:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(earlier), strict=True)
        return LinkCounts(*(now - before for now, before in pairs))


def read_counts(network: Network) -> list[LinkCounts]:
    """Counters by host since the network was made."""
    received = _passed(network.switch)
    counts = []
    for host in network.hosts:
        sent = _passed(host.namespace)["eth0"]
        port = received[host.port]
        counts.append(LinkCounts(sent[0], sent[1], port[0], port[1],
                                 _retransmitted_segments(host.namespace)))
    return counts


def _passed(namespace: str) -> dict[str, tuple[int, int]]:
    """Bytes and packets that have passed, by device."""
    disciplines = json.loads(namespaces.call("tc", "-n", namespace, "-s", "-j", "qdisc", "show"))
    return {discipline["dev"]: (discipline["bytes"], discipline["packets"])
            for discipline in disciplines if discipline.get("root")}


def _retransmitted_segments(namespace: str) -> int:
    text = namespaces.call("ip", "netns", "exec", namespace, "cat", "/proc/net/snmp")
    names, values = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    return int(values[names.index("RetransSegs")])
