#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of two levels from the text of src/codec/FORMAT.md alone, section 21, and their
states from that of src/state/STATE.md. Run it only for a new version of these; the files must not change.

Usage: make_golden_levels.py FOLDER
"""
import json
import os
import struct
import sys

from make_golden import TYPES, Case, bits_of, f32, folded, pack, words_sums
from make_golden_low_bit import SERVER_STREAM, TENSOR, LowBitCase
from make_golden_states import COMPRESSOR_ALL, COMPRESSOR_RANK, IDENTITY, SERVER, WORKER, blob

COLLECTIVES = {"all_reduce": 2, "reduce_scatter": 3}
OPS = {"sum": 0, "avg": 4}
HAS_CHECKSUM = 2  # a flag
HAS_SERVER_RESIDUAL, HAS_TWO_LEVELS = 1, 16  # parameters
ALIGNMENT = 8  # of chunks of allreduces
DEFAULT_ALIGNMENT = 64  # in states of reduce-scatters, which have none
SEGMENT = 64


def add_up(values):
    total = values[0]
    for v in values[1:]:
        total = f32(total + v)
    return total


class Hosts:
    def __init__(self, letters):
        names = sorted(set(letters), key=letters.index)
        self.host_of = [names.index(letter) for letter in letters]
        self.ranks_of = [[r for r, host in enumerate(self.host_of) if host == g] for g in range(len(names))]
        self.local_of = [self.ranks_of[host].index(r) for r, host in enumerate(self.host_of)]
        self.sizes = [len(ranks) for ranks in self.ranks_of]
        self.count, self.rails, self.is_even = len(names), min(self.sizes), len(set(self.sizes)) == 1

    def neighbors(self, rank):
        return [r for r in self.ranks_of[self.host_of[rank]] if r != rank]

    def identifier(self):
        """The member `hosts` of a state."""
        h = 2166136261
        for byte in struct.pack("<%dI" % len(self.host_of), *self.host_of):
            h = (h ^ byte) * 16777619 % 2**32
        return (h ^ h >> 24) & 0xFFFFFF or 1


class Signs(Case):
    """Packets of signs by the functions that LowBitCase has. A packet: scales, and a sign for each element."""

    number, codec_in_header = 0, 2

    def __init__(self, *arguments):
        name, n, d, block, kind, residual, op = arguments
        super().__init__(name, n, d, ALIGNMENT, block, "l2", kind, residual, op, "ef")
        self.codec, self.call = "sign", 0

    def encode(self, values, first, _):
        return self.sums_to_scales([(values, first)])[0], [-1.0 if v < 0 else 1.0 for v in values]

    def decode(self, packet, first):
        scales, signs = packet
        return [s * scales[i // self.block] if self.takes_part(first + i) else 0.0 for i, s in enumerate(signs)]

    def payload(self, packet):
        return pack(packet[0], "fp32") + bits_of(packet[1])

    def mean_of(self, values):
        return add_up([f32(v / len(values)) for v in values])

    def encode_result(self, y, first, _):
        scales, signs = self.encode(y, first, None)
        return [TYPES[self.kind][2](a) for a in scales], signs


class Fp4(LowBitCase):
    codec_in_header = 4

    def __init__(self, *arguments):
        name, n, d, block, kind, residual, op = arguments
        super().__init__(name, "fp4", n, d, block, kind, residual, op, "ef")

    def mean_of(self, values):
        return f32(add_up(values) / len(values))

    def encode_result(self, y, first, stream):
        return self.encode(y, first, stream)


class LevelsCase:
    def __init__(self, collective, letters, count, codec):
        """count: elements of the tensor, or of a part."""
        self.collective, self.letters, self.count, self.codec = collective, letters, count, codec
        self.hosts, self.n = Hosts(letters), len(letters)
        self.is_reduce_scatter = collective == "reduce_scatter"
        if self.is_reduce_scatter:
            self.chunks, self.chunk, self.d = self.n, count, self.n * count
        else:
            self.chunks, self.d = self.hosts.rails * self.hosts.count, count
            self.chunk = ALIGNMENT * -(-count // (self.chunks * ALIGNMENT))
        self.segment, self.segments = self.chunk, 1
        if self.chunk > SEGMENT:
            wanted = min(64, -(-self.chunk // SEGMENT))
            self.segment = codec.block * -(-(-(-self.chunk // wanted)) // codec.block)
            self.segments = -(-self.chunk // self.segment)
        self.e = [[0.0] * self.d for _ in range(self.n)]
        self.s = [0.0] * self.d
        self.messages = []  # of the last call: exchange, sender, receiver, segment member, flags, payload

    # Who does what.

    def owner(self, j):
        """The rank that serves chunk j, or whose part it is."""
        return j if self.is_reduce_scatter else self.compressor_of(j, j % self.hosts.count)

    def compressor_of(self, j, g):
        """The rank of host g that compresses chunk j."""
        ranks = self.hosts.ranks_of[g]
        if self.is_reduce_scatter:
            return ranks[self.hosts.local_of[j] % len(ranks)]
        return ranks[j // self.hosts.count]

    def chunks_of(self, rank):
        """The chunks that a rank compresses."""
        return [j for j in range(self.chunks) if self.compressor_of(j, self.hosts.host_of[rank]) == rank]

    def range_of(self, j):
        return min(j * self.chunk, self.d), min((j + 1) * self.chunk, self.d)

    def segments_of(self, j):
        begin, end = self.range_of(j)
        starts = [min(begin + s * self.segment, end) for s in range(self.segments + 1)]
        return list(zip(starts, starts[1:]))

    def inside(self, j, s):
        """The segment member of messages inside a host."""
        return (j if self.is_reduce_scatter else j % self.hosts.count) * self.segments + s

    # Arithmetic.

    def compress(self, x, j, g):
        """Host g's packets of the segments of chunk j."""
        rank, codec, packets = self.compressor_of(j, g), self.codec, []
        for begin, end in self.segments_of(j):
            z = []
            for i in range(begin, end):
                u = f32(add_up([x[r][i] for r in self.hosts.ranks_of[g]]) / self.hosts.sizes[g])
                z.append(f32(u + self.e[rank][i]) if codec.takes_part(i) else 0.0)
            packets.append(codec.encode(z, begin, rank))
            for i, v in enumerate(codec.decode(packets[-1], begin)):
                self.e[rank][begin + i] = TYPES[codec.residual][2](f32(z[i] - v))
        return packets

    def combined(self, values):
        """The sum or the mean of what the hosts' packets decode to, without a residual."""
        if self.hosts.is_even and not self.codec.is_sum:
            return self.codec.mean_of(values)
        total = add_up([f32(size * v) for size, v in zip(self.hosts.sizes, values)])
        return total if self.codec.is_sum else f32(total / self.n)

    def reduce(self, packets, j, out):
        """packets: those of chunk j, by host. Returns the packets of the result, if there are any."""
        codec, results, rounded = self.codec, [], TYPES[self.codec.kind][2]
        for s, (begin, end) in enumerate(self.segments_of(j)):
            values = [codec.decode(of_host[s], begin) for of_host in packets]
            y = [self.combined([v[i] for v in values]) for i in range(end - begin)]
            if self.is_reduce_scatter:
                out[begin:end] = [rounded(v) for v in y]
                continue
            y = [f32(v + self.s[begin + i]) if codec.takes_part(begin + i) else 0.0 for i, v in enumerate(y)]
            results.append(codec.encode_result(y, begin, SERVER_STREAM + j))
            for i, v in enumerate(codec.decode(results[-1], begin)):
                out[begin + i] = rounded(v)
                self.s[begin + i] = TYPES[codec.residual][2](f32(y[i] - out[begin + i]))
        return results

    def run(self, x):
        """Makes a call. Returns all chunks of the result."""
        out = [0.0] * self.d
        packets = [[self.compress(x, j, g) for g in range(self.hosts.count)] for j in range(self.chunks)]
        results = [self.reduce(packets[j], j, out) for j in range(self.chunks)]
        self.codec.call += 1
        self.messages = self.messages_of(x, packets, results)
        return out

    # Messages.

    def messages_of(self, x, packets, results):
        messages, hosts = [], self.hosts

        def send_packets(exchange, sender, receiver, of_segments, member):
            for s, packet in enumerate(of_segments):
                messages.append((exchange, sender, receiver, member(s), HAS_CHECKSUM, self.codec.payload(packet)))

        for r in range(self.n):
            for peer in hosts.neighbors(r):
                for j in self.chunks_of(peer):
                    for s, (begin, end) in enumerate(self.segments_of(j)):
                        elements = pack(x[r][begin:end], self.codec.kind)
                        messages.append((1, r, peer, self.inside(j, s), 0, elements))
            for j in self.chunks_of(r):
                if hosts.host_of[self.owner(j)] != hosts.host_of[r]:
                    send_packets(2, r, self.owner(j), packets[j][hosts.host_of[r]], lambda s: s)
            if self.is_reduce_scatter:
                messages += [(3, r, peer, 0, HAS_CHECKSUM, b"") for peer in range(self.n) if peer != r]
                continue
            for j in self.chunks_of(r):
                if self.owner(j) == r:
                    for g in range(hosts.count):
                        if g != hosts.host_of[r]:
                            send_packets(3, r, self.compressor_of(j, g), results[j], lambda s: s)
                for peer in hosts.neighbors(r):
                    send_packets(4, r, peer, results[j], lambda s, j=j: self.inside(j, s))
        return messages

    def header(self, number, message):
        exchange, _, _, segment, flags, payload = message
        codec = self.codec
        sums = words_sums(payload) if flags & HAS_CHECKSUM else (0, 0)
        parameters = HAS_TWO_LEVELS | (0 if self.is_reduce_scatter else HAS_SERVER_RESIDUAL)
        fields = struct.pack(
            "<4sBBHIIQQIIIBBBBHBBHHII", b"1BIT", 1, exchange, flags, 0xC0FFEE, 0, number, self.count, TENSOR, 0,
            codec.block, COLLECTIVES[self.collective], TYPES[codec.kind][0], OPS[codec.op], codec.codec_in_header,
            0 if self.is_reduce_scatter else ALIGNMENT, codec.number, parameters, segment, self.segments, *sums)
        return fields[:12] + struct.pack("<I", folded(fields)) + fields[16:]

    # States.

    def worker(self, rank):
        return [v for j in self.chunks_of(rank) for v in self.e[rank][slice(*self.range_of(j))]]

    def server(self, rank):
        served = [j for j in range(self.chunks) if not self.is_reduce_scatter and self.owner(j) == rank]
        return [v for j in served for v in self.s[slice(*self.range_of(j))]]

    def identity(self, rank, is_all):
        codec = self.codec
        return struct.pack(
            "<QQQIIIHBBBBBBB3s", self.d, codec.call, codec.call, codec.block, self.n, rank,
            DEFAULT_ALIGNMENT if self.is_reduce_scatter else ALIGNMENT, COLLECTIVES[self.collective],
            codec.codec_in_header, TYPES[codec.kind][0], codec.number, 0 if is_all else TYPES[codec.residual][0],
            0 if self.is_reduce_scatter else 1, OPS[codec.op],
            (0 if is_all else self.hosts.identifier()).to_bytes(3, "little"))

    def state(self, rank):
        sections = {IDENTITY: self.identity(rank, False), WORKER: pack(self.worker(rank), self.codec.residual)}
        if not self.is_reduce_scatter:
            sections[SERVER] = pack(self.server(rank), self.codec.residual)
        return blob(COMPRESSOR_RANK, sections)

    def state_of_all(self):
        mean = []
        for i in range(self.d):
            ranks = sorted(self.compressor_of(i // self.chunk, g) for g in range(self.hosts.count))
            mean.append(f32(add_up([f32(self.hosts.sizes[self.hosts.host_of[r]] * self.e[r][i])
                                    for r in ranks]) / self.n))
        sections = {IDENTITY: self.identity(0, True), WORKER: pack(mean, "fp32")}
        if not self.is_reduce_scatter:
            s = [f32(v / self.n) for v in self.s] if self.codec.is_sum else self.s
            sections[SERVER] = pack(s, "fp32")
        return blob(COMPRESSOR_ALL, sections)

    # Files.

    def example(self, exchange):
        """The last message of an exchange, of those with a payload if there are any."""
        of_exchange = [m for m in self.messages if m[0] == exchange]
        message = ([m for m in of_exchange if m[5]] or of_exchange)[-1]
        _, sender, receiver, segment, flags, payload = message
        return {"exchange": exchange, "sender": sender, "receiver": receiver, "segment": segment,
                "flags": flags, "payload": payload.hex(), "header": self.header(0, message).hex()}

    def golden(self, calls=3):
        codec = self.codec
        result = {k: getattr(codec, k) for k in ("name", "codec", "d", "block", "kind", "residual", "op")}
        result.update(collective=self.collective, hosts=self.letters, count=self.count, align=ALIGNMENT,
                      segment=SEGMENT, calls=[])
        for number in range(calls):
            x = [codec.input() for _ in range(self.n)]
            out = self.run(x)
            own = [out[slice(*self.range_of(r))] for r in range(self.n)] if self.is_reduce_scatter else [out]
            result["calls"].append({"x": [pack(v, codec.kind).hex() for v in x],
                                    "out": [pack(v, codec.kind).hex() for v in own]})
            if number == 0:
                result["segments"] = self.segments
                result["headers"] = [self.example(exchange) for exchange in sorted({m[0] for m in self.messages})]
        result["e"] = [pack(self.worker(r), codec.residual).hex() for r in range(self.n)]
        result["s"] = [pack(self.server(r), codec.residual).hex() for r in range(self.n)]
        result["states"] = [self.state(r).hex() for r in range(self.n)]
        result["state_of_all"] = self.state_of_all().hex()
        return result


def case(name, collective, letters, count, codec=Signs, block=64, kind="fp32", residual="fp32", op="avg"):
    n = len(letters)
    elements = n * count if collective == "reduce_scatter" else count
    return LevelsCase(collective, letters, count, codec(name, n, elements, block, kind, residual, op))


CASES = [
    case("levels_all_reduce", "all_reduce", "aabb", 260),
    case("levels_all_reduce_sum_bf16", "all_reduce", "aab", 300, kind="bf16", residual="bf16", op="sum"),
    case("levels_reduce_scatter", "reduce_scatter", "aab", 77),
    case("levels_all_reduce_fp4", "all_reduce", "abab", 270, codec=Fp4, block=32),
]

if __name__ == "__main__":
    for levels_case in CASES:
        golden = levels_case.golden()
        with open(os.path.join(sys.argv[1], golden["name"] + ".json"), "w") as file:
            json.dump(golden, file, indent=0)
            file.write("\n")
