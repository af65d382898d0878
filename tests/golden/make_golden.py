#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files from the text of src/codec/FORMAT.md alone, in exact arithmetic.

It shares nothing with the library: an fp32 operation is done in fp64 and rounded, which is correctly
rounded for +, -, * and /. Run it only for a new version of the format; the files must not change.

Usage: make_golden.py FOLDER
"""
import json
import math
import os
import struct
import sys


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


TYPES = {  # name -> (code in the header, to bytes, rounding)
    "fp32": (0, lambda v: struct.pack("<f", v), f32),
    "fp16": (1, lambda v: struct.pack("<e", v), lambda v: struct.unpack("<e", struct.pack("<e", v))[0]),
    "bf16": (2, lambda v: struct.pack("<H", bf16_bits(v)), lambda v: from_bf16(bf16_bits(v))),
}


def pack(values, kind):
    return b"".join(TYPES[kind][1](v) for v in values)


def sign(z):
    return -1.0 if z < 0 else 1.0


def lanes_sum(values, l1, rounded):
    lanes = [0.0] * 128
    for i, z in enumerate(values):
        lanes[i % 128] = rounded(lanes[i % 128] + (abs(z) if l1 else rounded(z * z)))
    half = 64
    while half:
        for lane in range(half):
            lanes[lane] = rounded(lanes[lane] + lanes[lane + half])
        half //= 2
    return lanes[0]


def f32_or_inf(x):
    try:
        return f32(x)
    except OverflowError:
        return math.inf


def block_sum(values, l1):
    total = lanes_sum(values, l1, f32_or_inf)
    if not math.isfinite(total) or (total < 2.0**-100 and any(values)):
        total = lanes_sum(values, l1, lambda x: x)
    return total


def scale_of(total, count, l1):
    if count == 0:
        return 0.0
    return f32(total / count if l1 else math.sqrt(total / count))


def blocks(count, length):
    return [(b, min(b + length, count)) for b in range(0, count, length)]


def bits_of(values):
    out = bytearray((len(values) + 7) // 8)
    for i, z in enumerate(values):
        if z < 0:
            out[i // 8] |= 1 << (i % 8)
    return bytes(out)


def words_sums(data):
    data += b"\0" * (-len(data) % 4)
    words = struct.unpack("<%dI" % (len(data) // 4), data)
    return sum(words) % 2**32, sum((i + 1) * w for i, w in enumerate(words)) % 2**32


def folded(data):
    plain, weighted = words_sums(data)
    return plain ^ (((weighted << 16) | (weighted >> 16)) & 0xFFFFFFFF)


class Case:
    def __init__(self, name, n, d, align, block, rule, kind, residual, op, mode, mask=False, special=False, cuts=()):
        self.cuts = list(cuts)
        self.name, self.n, self.d, self.align, self.block = name, n, d, align, block
        self.l1, self.kind, self.residual, self.is_sum = rule == "l1", kind, residual, op == "sum"
        self.rule, self.op, self.mode, self.special = rule, op, mode, special
        self.chunk = align * -(-d // (n * align))
        self.state = 12345
        self.mask = [self.random() % 4 != 0 for _ in range(d)] if mask else None
        self.e = [[0.0] * d for _ in range(n)]
        self.s = [0.0] * d

    def random(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 40

    def value(self):
        mantissa = self.random() - 2**23
        return TYPES[self.kind][2](mantissa * 2.0 ** (-24 - self.random() % 6))

    def input(self):
        x = [self.value() for _ in range(self.d)]
        if self.special:  # zeros of both signs, subnormals, values whose squares overflow or vanish
            x[0], x[1], x[2] = 0.0, -0.0, 2.0**-149
            for i in range(64, 128):
                x[i] = f32(x[i] * 2.0**80)
            for i in range(128, self.d):
                x[i] = f32(x[i] * 2.0**-90)
        return x

    def takes_part(self, i):
        return self.mask is None or self.mask[i]

    def range_of(self, j):
        return min(j * self.chunk, self.d), min((j + 1) * self.chunk, self.d)

    def runs(self, j):
        """The elements of chunk j, up to each cut and the end."""
        begin, end = self.range_of(j)
        edges = [begin] + [c for c in self.cuts if begin < c < end] + [end]
        return list(zip(edges, edges[1:]))

    def sums_to_scales(self, pieces):
        """pieces: lists of (values, first element); returns the scales of each, per block or shared."""
        length = self.block or 4096
        all_scales, total, count = [], 0.0, 0
        for values, first in pieces:
            scales = []
            for begin, end in blocks(len(values), length):
                part = sum(self.takes_part(first + i) for i in range(begin, end))
                block_total = block_sum(values[begin:end], self.l1)
                scales.append(scale_of(block_total, part, self.l1))
                total, count = total + block_total, count + part
            all_scales.append(scales)
        if self.block:
            return all_scales
        shared = scale_of(total, count, self.l1)
        return [[shared] if values else [] for values, _ in pieces]

    def lost(self, value, scale, kind):
        return TYPES[kind][2](f32(value - scale * sign(value)))

    def run(self, x):
        n, feedback = self.n, self.mode == "ef"
        packets = []
        for r in range(n):
            z = [f32(x[r][i] + self.e[r][i]) if feedback else x[r][i] for i in range(self.d)]
            z = [v if self.takes_part(i) else 0.0 for i, v in enumerate(z)]
            pieces = [(z[b:e], b) for j in range(n) for b, e in self.runs(j)]
            scales = self.sums_to_scales(pieces)
            by_run = iter([(s, bits_of(v)) for s, (v, _) in zip(scales, pieces)])
            packets.append([[next(by_run) for _ in self.runs(j)] for j in range(n)])
            if feedback:
                for (values, first), piece_scales in zip(pieces, scales):
                    for i, v in enumerate(values):
                        a = piece_scales[i // self.block if self.block else 0]
                        keep = self.takes_part(first + i)
                        self.e[r][first + i] = self.lost(v, a, self.residual) if keep else 0.0
        means, out = [], [0.0] * self.d
        for j in range(n):
            mean = []
            for number, (begin, end) in enumerate(self.runs(j)):
                mean.append(self.reduce([packets[r][j][number] for r in range(n)], begin, end, out))
            means.append(mean)
        return packets, means, out

    def reduce(self, packets, begin, end, out):
        """The server's packet of a run, from those of all ranks."""
        n, feedback, y = self.n, self.mode == "ef", []
        for i in range(end - begin):
            total = None
            for scales, bits in packets:
                w = f32(scales[i // self.block if self.block else 0] / n)
                w = -w if bits[i // 8] >> (i % 8) & 1 else w
                total = w if total is None else f32(total + w)
            if feedback:
                total = f32(total + self.s[begin + i])
            y.append(total if self.takes_part(begin + i) else 0.0)
        scales = self.sums_to_scales([(y, begin)])[0]
        rounded = TYPES[self.kind][2]
        scales = [rounded(f32(n * a)) if self.is_sum else rounded(a) for a in scales]
        for i, v in enumerate(y):
            t = scales[i // self.block if self.block else 0]
            keep = self.takes_part(begin + i)
            out[begin + i] = t * sign(v) if keep else 0.0
            if feedback:
                back = f32(t / n) if self.is_sum else t
                self.s[begin + i] = self.lost(v, back, self.residual) if keep else 0.0
        return scales, bits_of(y)

    def mask_digest(self):
        return 0 if self.mask is None else folded(bits_of([-1.0 if m else 0.0 for m in self.mask])) or 1

    @staticmethod
    def payload(runs):
        return b"".join(pack(s, "fp32") for s, _ in runs) + b"".join(b for _, b in runs)

    def header(self, number, payload, exchange):
        mask_digest = self.mask_digest()
        if self.cuts:
            mask_digest ^= folded(struct.pack("<%dQ" % len(self.cuts), *self.cuts)) or 1
        plain, weighted = words_sums(payload)
        fields = struct.pack(
            "<4sBBHIIQQIIIBBBBHBBHHII", b"1BIT", 1, exchange, 2, 0xC0FFEE, 0, number, self.d, 7, mask_digest,
            self.block, 2, TYPES[self.kind][0], 0 if self.is_sum else 4, 2 if self.mode == "ef" else 1,
            self.align, 1 if self.l1 else 0, 33 if self.cuts else 1, 0, 1, plain, weighted)
        return fields[:12] + struct.pack("<I", folded(fields)) + fields[16:]

    def golden(self, calls=3):
        result = {k: getattr(self, k) for k in
                  ("name", "n", "d", "align", "block", "rule", "kind", "residual", "op", "mode")}
        if self.mask is not None:
            result["mask"] = bits_of([-1.0 if m else 0.0 for m in self.mask]).hex()
        if self.cuts:
            result["cuts"] = self.cuts
        return self.with_calls(result, calls)

    def inputs(self):
        """What every rank gives."""
        return [self.input() for _ in range(self.n)]

    def with_calls(self, result, calls):
        result["calls"] = []
        for number in range(calls):
            x = self.inputs()
            packets, means, out = self.run(x)
            result["calls"].append({
                "x": [pack(v, self.kind).hex() for v in x],
                "exchange1": [[self.payload(p).hex() for p in row] for row in packets],
                "exchange2": [self.payload(p).hex() for p in means],
                "header1": self.header(number, self.payload(packets[0][1]), 1).hex(),
                "header2": self.header(number, self.payload(means[0]), 2).hex(),
                "out": pack(out, self.kind).hex(),
            })
        if self.mode == "ef":
            result["e"] = [pack(v, self.residual).hex() for v in self.e]
            result["s"] = pack(self.s, self.residual).hex()
        return result


CASES = [
    Case("ef_fp32_l2_block", 3, 400, 64, 64, "l2", "fp32", "fp32", "avg", "ef"),
    Case("ef_fp32_l1_tensor_sum", 3, 333, 8, 0, "l1", "fp32", "fp32", "sum", "ef"),
    Case("ef_fp16_l2_tensor", 2, 301, 64, 0, "l2", "fp16", "fp32", "sum", "ef"),
    Case("ef_bf16_l1_block_masked", 3, 390, 64, 128, "l1", "bf16", "bf16", "avg", "ef", mask=True),
    Case("ef_fp32_l2_block_special", 2, 260, 64, 64, "l2", "fp32", "fp32", "avg", "ef", special=True),
    Case("sign_fp32_l2_block", 4, 270, 8, 64, "l2", "fp32", "fp32", "avg", "sign"),
    Case("ef_fp32_l2_cuts", 3, 290, 8, 64, "l2", "fp32", "fp32", "avg", "ef", cuts=(1, 10, 96, 99, 200, 289)),
]


def write(cases):
    """Writes the golden files of `cases` to the folder that the command names."""
    for case in cases:
        with open(os.path.join(sys.argv[1], case.name + ".json"), "w") as file:
            json.dump(case.golden(), file, indent=0)
            file.write("\n")


if __name__ == "__main__":
    write(CASES)
