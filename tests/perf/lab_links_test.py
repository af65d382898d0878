# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Links are as fast as they should be and count what passes: lab_links_test.py [ALL_REDUCE_PERF]"""

import os
import re
import sys
import unittest

import lab_case

TOOL = ""
HEADER_BYTES = 66  # of a frame: Ethernet 14, IPv4 20, TCP with time stamps 32
SEGMENT_BYTES = 1448  # of a full one, TCP's data
ATTEMPTS = 5  # a busy machine makes a link slow

# Host 1 sends bytes to host 0, which prints the time from the call that sends them to the last, and for
# how much of it a process had to wait for a core. The hosts have one clock, and the first bytes say when
# it began: such a wait makes the link seem slower, never faster.
TRANSFER = """
import os, socket, struct, sys, time
count = int(sys.argv[1])
def seconds_without_core():
    with open("/proc/self/schedstat") as file:
        return int(file.read().split()[1]) * 1e-9
if os.environ["RANK"] == "0":
    peer = socket.create_server(("", 5001)).accept()[0]
    begin, = struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))
    waited, left, buffer = seconds_without_core(), count - 8, bytearray(1 << 20)
    while left > 0:
        left -= peer.recv_into(buffer, min(left, len(buffer)))
    seconds = time.monotonic() - begin
    waited = seconds_without_core() - waited
    print(seconds, waited + struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))[0])
else:
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], 5001))
            break
        except OSError:
            time.sleep(0.01)
    waited = seconds_without_core()
    peer.sendall(struct.pack("d", time.monotonic()) + bytes(count - 8))
    peer.sendall(struct.pack("d", seconds_without_core() - waited))
    peer.shutdown(socket.SHUT_WR)
    peer.recv(1)
"""


class LabLinksTest(lab_case.LabTestCase):
    def transfer(self, rate: str, count: int) -> tuple[dict, float, float]:
        report, output = self.report_of("run", "--hosts", "2", "--rate", rate, "--",
                                        "python3", "-c", TRANSFER, str(count))
        seconds, waited = (float(text) for text in output.split())
        return report, seconds, waited

    def test_a_link_has_its_rate(self):
        for rate, bits_per_second in (("50mbit", 50e6), ("1gbit", 1e9)):
            with self.subTest(rate=rate):
                count = int(bits_per_second / 8 * 0.4)
                best = 0.0
                for _ in range(ATTEMPTS):
                    report, seconds, waited = self.transfer(rate, count)
                    self.assertEqual(report["rate_bits_per_second"], bits_per_second)
                    # Headers leave 95.6 %. A bucket's worth comes sooner.
                    self.assertLess(8 * count / seconds / bits_per_second, 0.956 * 1.01)
                    best = max(best, 8 * count / max(seconds - waited, 1e-9) / bits_per_second)
                    if best > 0.8:
                        break
                self.assertGreater(best, 0.8)

    def test_frames_are_counted_with_their_headers(self):
        count = 10_000_000
        report, _, _ = self.transfer("1gbit", count)
        receiver, sender = report["links"]
        least = count + HEADER_BYTES * -(-count // SEGMENT_BYTES)
        again = sender["retransmitted_segments"] * (HEADER_BYTES + SEGMENT_BYTES)
        # Some frames are not full: the sender cuts where the receiver's window ends.
        self.assertGreaterEqual(sender["sent_bytes"], least)
        self.assertLess(sender["sent_bytes"], 1.005 * least + again)
        self.assertGreaterEqual(sender["sent_packets"], count / SEGMENT_BYTES)
        # The bytes one host sends equal those the other receives; nobody else is there.
        for one, other in ((sender, receiver), (receiver, sender)):
            self.assertLess(abs(one["sent_bytes"] - other["received_bytes"]), 0.001 * least)
        self.assertIsNone(report["library"])

    def test_an_idle_link_carries_nothing(self):
        report, _ = self.report_of("run", "--hosts", "2", "--rate", "1gbit", "sleep", "0.5")
        for link in report["links"]:
            self.assertEqual({link[key] for key in link if key != "host"}, {0}, link)

    def test_links_agree_with_the_library(self):
        """The link's bytes are the library's and the headers of UCX, TCP, IP and Ethernet.

        A message is cut into frames of at most 256 KiB, each with at most 64 bytes of its own; it
        has at most 4 that are not full: header, request and answer of a large one, the rest.
        TCP sends full segments, and one that is not full for each fragment at most; for each that it
        gets it acknowledges at most once, and every rank gets about as much as it sends. Joining,
        heartbeats and the gathering of the counts are below 64 KiB.
        """
        report, output = self.report_of("run", "--hosts", "4", "--rate", "1gbit", "--", TOOL,
                                        "--transport", "socket", "-b", "4M", "-e", "4M", "-n", "3",
                                        "--mode", "ef")
        lines = re.findall(r"^#   rank (\d) sent (\d+) bytes in (\d+) messages, \d+ bytes of them", output, re.MULTILINE)
        self.assertEqual([[count["rank"], count["sent_bytes"], count["sent_messages"]]
                          for count in report["library"]],
                         [[int(text) for text in line] for line in lines])
        self.assertEqual([count["rank"] for count in report["library"]], [0, 1, 2, 3])
        for link, count in zip(report["links"], report["library"], strict=True):
            fragments = count["sent_bytes"] / (256 << 10) + 4 * count["sent_messages"]
            payload = count["sent_bytes"] + 64 * fragments + (64 << 10)
            frames = 2 * (payload / SEGMENT_BYTES + fragments)
            again = link["retransmitted_segments"] * (HEADER_BYTES + SEGMENT_BYTES)
            bound = payload + HEADER_BYTES * frames + again
            self.assertGreater(count["sent_bytes"], 10 << 20)  # or the bound would say little
            self.assertGreater(link["sent_bytes"], count["sent_bytes"])
            self.assertLess(link["sent_bytes"], bound)
            self.assertLess(bound - again, 1.16 * count["sent_bytes"])


if __name__ == "__main__":
    lab_case.skip_without_lab()
    TOOL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
