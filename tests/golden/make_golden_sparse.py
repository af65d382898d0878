#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of sparse codecs from the text of src/codec/FORMAT.md alone, section 18.
Run it only for a new version of the format; the files must not change.

Usage: make_golden_sparse.py FOLDER
"""
import struct

from make_golden import TYPES, Case, bf16_bits, block_sum, blocks, f32, folded, pack, words_sums, write
from make_golden_low_bit import SEED, TENSOR, bf16, philox

SHARED_STREAM = 0xFFFFFFFF
KEYS = ("name", "codec", "k", "values", "hops", "decay", "n", "d", "align", "block", "kind", "residual", "op", "mode")


def draw(i, epoch):
    counter = [(i >> 2) & 0xFFFFFFFF, i >> 34, epoch, TENSOR]
    return philox(counter, [SEED & 0xFFFFFFFF, (SEED >> 32) ^ SHARED_STREAM])[i % 4]


def magnitude_bits(z):
    return struct.unpack("<I", struct.pack("<f", z))[0] & 0x7FFFFFFF


def string_of(numbers, bits):
    return sum(v << (i * bits) for i, v in enumerate(numbers)).to_bytes((len(numbers) * bits + 7) // 8, "little")


def padded(data):
    return data + b"\0" * (-len(data) % 16)


class SparseCase(Case):
    def __init__(self, name, codec, k, values, hops, n, d, block, kind, residual, op, mode, decay=1.0, mask=False, near=False):
        super().__init__(name, n, d, 64, block, "l1", kind, residual, op, mode, mask=mask)
        self.codec, self.k, self.values, self.hops, self.decay = codec, k, values, hops, decay
        self.is_random = codec == "randk"
        self.is_unbiased = self.is_random and mode == "plain"
        self.is_near = near
        self.call = 0

    def value(self):
        """Near: magnitudes that differ, and round up to one bf16 number."""
        if not self.is_near:
            return super().value()
        return (-1.0) ** self.random() * (1 + (520 + self.random() % 256) * 2.0**-17)

    def share(self, length):
        return -(-self.k * length // self.block)

    def select(self, z, first):
        """Indices in a block whose elements begin at `first`, ascending."""
        def key(i):
            if self.is_random:
                return draw(first + i, self.call), i
            return (0 if self.takes_part(first + i) else 1), -magnitude_bits(z[i]), i
        return sorted(sorted(range(len(z)), key=key)[:self.share(len(z))])

    def two_magnitudes(self, values, part):
        """values: those that are sent, 0 where they take no part."""
        a = [abs(v) for v in values]
        count = sum(part)
        t = f32(block_sum(a, True) / count) if count else 0.0
        for _ in range(2):
            high = [v if v > t else 0.0 for v in a]
            low = [0.0 if v > t else v for v in a]
            highs = sum(v > t for v in a)
            h = bf16(f32(block_sum(high, True) / highs)) if highs else 0.0
            l = bf16(f32(block_sum(low, True) / (count - highs))) if count - highs else 0.0
            t = f32(h / 2 + l / 2)
        return h or l, l, t

    def encode(self, values, first):
        """The packet of a piece: a list of (magnitudes, indices, codes or values) for each block."""
        packet = []
        for begin, end in blocks(len(values), self.block):
            z = values[begin:end]
            indices = self.select(z, first + begin)
            sent = [z[i] for i in indices]
            part = [self.takes_part(first + begin + i) for i in indices]
            if self.values == "fp32":
                packet.append((None, indices, sent))
                continue
            h, l, t = self.two_magnitudes(sent, part)
            codes = [(abs(v) > t) | (v < 0) << 1 if p else 0 for v, p in zip(sent, part)]
            packet.append(((h, l), indices, codes))
        return packet

    def value_of(self, magnitudes, code):
        if magnitudes is None:
            return code
        return (-1 if code & 2 else 1) * magnitudes[0 if code & 1 else 1]

    def decode(self, packet, count, first):
        """What is sent, 0 elsewhere and outside the mask; and which elements that is."""
        values, sent = [0.0] * count, [False] * count
        for b, (magnitudes, indices, codes) in enumerate(packet):
            for i, code in zip(indices, codes):
                at = b * self.block + i
                sent[at] = self.takes_part(first + at)
                values[at] = self.value_of(magnitudes, code) if sent[at] else 0.0
        return values, sent

    def factor(self, count, i):
        if not self.is_unbiased:
            return 1.0
        length = min(self.block, count - i // self.block * self.block)
        return f32(length / self.share(length))

    def sum_of(self, packets, count, first, is_sum):
        decoded = [self.decode(p, count, first)[0] for p in packets]
        y = []
        for i in range(count):
            total = 0.0
            for values in decoded:
                total = f32(total + values[i])
            y.append(total if is_sum else f32(total / len(packets)))
        return y

    def lost(self, z, packet, first, rounded):
        values, sent = self.decode(packet, len(z), first)
        keep = TYPES[self.residual][2]
        return [keep(f32(v - rounded(values[i])) if sent[i] else v) if self.takes_part(first + i) else 0.0
                for i, v in enumerate(z)]

    def ranges(self):
        return [self.range_of(j) for j in range(self.n)] if self.hops == 2 else [(0, self.d)]

    def run(self, x):
        feedback, rounded = self.mode == "ef", TYPES[self.kind][2]
        packets, means, out = [[] for _ in range(self.n)], [], [0.0] * self.d
        for begin, end in self.ranges():
            for r in range(self.n):
                z = [f32(x[r][i] + f32(self.decay * self.e[r][i])) if feedback else x[r][i] for i in range(begin, end)]
                z = [v if self.takes_part(begin + i) else 0.0 for i, v in enumerate(z)]
                packets[r].append(self.encode(z, begin))
                if feedback:
                    self.e[r][begin:end] = self.lost(z, packets[r][-1], begin, f32)
            count = end - begin
            y = self.sum_of([row[-1] for row in packets], count, begin, self.is_sum)
            if self.hops == 2:
                y = [f32(v + self.s[begin + i]) if feedback else v for i, v in enumerate(y)]
                y = [v if self.takes_part(begin + i) else 0.0 for i, v in enumerate(y)]
                means.append(self.encode(y, begin))
                if feedback:
                    self.s[begin:end] = self.lost(y, means[-1], begin, rounded)
                y = self.sum_of([means[-1]], count, begin, True)
            for i, v in enumerate(y):
                v = f32(v * self.factor(count, i))
                out[begin + i] = rounded(v) if self.takes_part(begin + i) else 0.0
        self.call += 1
        return packets, means, out

    def payload(self, packet):
        data = b""
        if self.values != "fp32":
            data += padded(b"".join(struct.pack("<HH", *map(bf16_bits, m)) for m, _, _ in packet))
        if not self.is_random:
            data += padded(string_of([i for _, indices, _ in packet for i in indices], 12))
        codes = [c for _, _, codes in packet for c in codes]
        return data + (b"".join(struct.pack("<f", v) for v in codes) if self.values == "fp32" else string_of(codes, 2))

    def header(self, number, payload, exchange):
        mask_digest = self.mask_digest()
        age = 0
        if self.is_random:
            mask_digest ^= (SEED & 0xFFFFFFFF) ^ (SEED >> 32)
            age = 0 if number == 0 else 1 + (number - 1) % 255
        format_number = (0 if self.values == "fp32" else 3) | (8 if self.is_random else 0)
        format_number |= (16 if self.hops == 1 else 0) | (32 if self.is_unbiased else 0)
        parameters = 2 if self.hops == 1 else 1
        plain, weighted = words_sums(payload)
        fields = struct.pack(
            "<4sBBBBIIQQIIIBBBBHBBHHII", b"1BIT", 1, exchange, 2, age, 0xC0FFEE, 0, number, self.d, TENSOR,
            mask_digest, self.block | self.k << 16, 2, TYPES[self.kind][0], 0 if self.is_sum else 4,
            6 if self.mode == "ef" else 5, self.align, format_number, parameters, 0, 1, plain, weighted)
        return fields[:12] + struct.pack("<I", folded(fields)) + fields[16:]

    def golden(self, calls=3):
        result = {key: getattr(self, key) for key in KEYS}
        result["seed"] = SEED
        if self.mask is not None:
            result["mask"] = [int(m) for m in self.mask]
        result["calls"] = []
        for number in range(calls):
            x = [self.input() for _ in range(self.n)]
            packets, means, out = self.run(x)
            call = {
                "x": [pack(v, self.kind).hex() for v in x],
                "exchange1": [[self.payload(p).hex() for p in row] for row in packets],
                "exchange2": [self.payload(p).hex() for p in means],
                "header1": self.header(number, self.payload(packets[0][-1]), 1).hex(),
                "out": pack(out, self.kind).hex(),
            }
            if means:
                call["header2"] = self.header(number, self.payload(means[0]), 2).hex()
            result["calls"].append(call)
        if self.mode == "ef":
            result["e"] = [pack(v, self.residual).hex() for v in self.e]
            result["s"] = pack(self.s, self.residual).hex()
        return result


CASES = [
    SparseCase("topk_ef_one_hop", "topk", 7, "two", 1, 3, 700, 320, "fp32", "fp32", "avg", "ef"),
    SparseCase("topk_ef_two_hops_fp16_sum_masked", "topk", 9, "two", 2, 2, 800, 384, "fp16", "fp32", "sum", "ef", mask=True),
    SparseCase("topk_ef_decay_values_bf16", "topk", 5, "fp32", 1, 2, 400, 320, "fp32", "bf16", "avg", "ef", decay=0.9375),
    SparseCase("topk_plain_two_hops_values", "topk", 20, "fp32", 2, 3, 1000, 320, "bf16", "fp32", "avg", "plain"),
    SparseCase("randk_ef_two_hops", "randk", 40, "two", 2, 2, 900, 448, "fp32", "fp32", "avg", "ef"),
    SparseCase("randk_plain_one_hop_masked", "randk", 33, "fp32", 1, 2, 500, 320, "fp32", "fp32", "sum", "plain", mask=True),
    SparseCase("topk_plain_one_hop_near", "topk", 6, "two", 1, 2, 400, 320, "fp32", "fp32", "avg", "plain", near=True),
]

if __name__ == "__main__":
    write(CASES)
