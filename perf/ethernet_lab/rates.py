# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How fast a link is, and the token bucket that makes it so.

The kernel hands TCP's data to a link in super-packets of up to 64 KiB, and a bucket must hold one: a
smaller one cuts it up, which was seen to cost retransmissions. But what fits the bucket passes at no
cost after a pause: 128 KiB are 10 ms at 100 Mbit/s. Small super-packets, on the other hand, cost the
processor more: two cores carried 15 Gbit/s of 64 KiB, 9 of 32 KiB and 5 of 16 KiB. So super-packets take
half a millisecond of the link at most, which is 64 KiB from 1 Gbit/s on, and the bucket is little more.

One TCP stream then had 95.5 Mbit/s of 100, 954 of 1000, 2581 of 2700 and 9540 of 10000, on an idle
machine with two cores; headers leave 95.6 %. Nothing was sent again but at 10 Gbit/s up to 45 segments
of 1.2 million: two cores carry the stream, frames overtake each other, and TCP takes that for loss.
"""

from __future__ import annotations

import dataclasses
import re

from ethernet_lab.errors import UsageError

UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
PATTERN = re.compile(r"(\d+(?:\.\d+)?)([kmg]?bit)", re.IGNORECASE)

FRAME_BYTES = 1514  # as the kernel counts it: Ethernet header and 1500 bytes
SEGMENT_BYTES = 1448  # of these, TCP's data
MIN_SUPER_PACKET_BYTES = 2 * FRAME_BYTES
MAX_SUPER_PACKET_BYTES = 65536
SECONDS_OF_SUPER_PACKET = 525e-6
SECONDS_OF_BUCKET = 300e-6  # at least: a waking timer is not more punctual
# A port's queue. Several hosts that send to one fill it; what it cannot take is lost, sent again, and
# waits for time-outs. With 20 ms three senders lost a hundredth at 100 Mbit/s, with 50 ms nothing.
SECONDS_OF_QUEUE = 50e-3
MIN_QUEUE_BYTES = 1 << 20

MIN_BITS_PER_SECOND = 10**6
MAX_BITS_PER_SECOND = 400 * 10**9


@dataclasses.dataclass(frozen=True)
class Rate:
    """The rate of one direction of a link."""

    text: str
    bits_per_second: int | None  # None: as fast as the machine

    @classmethod
    def parse(cls, text: str) -> Rate:
        if text == "none":
            return cls(text, None)
        match = PATTERN.fullmatch(text)
        if match is None:
            raise UsageError(f"rate {text}: write a number with a unit, such as 100mbit or 2.7gbit, "
                             "or none for no limit")
        bits = round(float(match[1]) * UNITS[match[2].lower()])
        if not MIN_BITS_PER_SECOND <= bits <= MAX_BITS_PER_SECOND:
            raise UsageError(f"rate {text} is not in 1mbit ... 400gbit")
        return cls(text, bits)

    def super_packet_bytes(self) -> int:
        """The most that the kernel may hand to the link at once."""
        if self.bits_per_second is None:
            return MAX_SUPER_PACKET_BYTES
        wanted = self._bytes_in(SECONDS_OF_SUPER_PACKET)
        return min(max(wanted, MIN_SUPER_PACKET_BYTES), MAX_SUPER_PACKET_BYTES)

    def bucket_bytes(self) -> int:
        """The size of a super-packet with a header before each of its segments."""
        headers = (FRAME_BYTES - SEGMENT_BYTES) * (self.super_packet_bytes() // SEGMENT_BYTES + 1)
        packet = self.super_packet_bytes() + headers + FRAME_BYTES
        return max(packet, self._bytes_in(SECONDS_OF_BUCKET))

    def queue_bytes(self) -> int:
        return max(self._bytes_in(SECONDS_OF_QUEUE), MIN_QUEUE_BYTES)

    def discipline(self) -> list[str]:
        """Arguments of tc for one end of a link. Both kinds of discipline count bytes with all headers."""
        if self.bits_per_second is None:
            return ["pfifo", "limit", "10000"]
        return ["tbf", "rate", f"{self.bits_per_second}bit", "burst", str(self.bucket_bytes()),
                "limit", str(self.queue_bytes())]

    def _bytes_in(self, seconds: float) -> int:
        return int((self.bits_per_second or 0) / 8 * seconds)
