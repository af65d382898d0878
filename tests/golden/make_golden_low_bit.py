#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of low-bit codecs from the text of src/codec/FORMAT.md alone, section 15.
Run it only for a new version of the format; the files must not change.

Usage: make_golden_low_bit.py FOLDER
"""
import math
import struct

from make_golden import TYPES, Case, bf16_bits, block_sum, blocks, f32, folded, from_bf16, words_sums, write

# name -> (member at offset 50, bits of a code, has a minimum)
CODECS = {"int8": (0x00, 8, False), "int8s": (0x40, 8, False), "int8s_up": (0x70, 8, False),
          "fp4": (0x05, 4, False), "int2": (0x0A, 2, False), "uint8mm": (0x0C, 8, True)}
GRID = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
THRESHOLDS = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]
SEED = 0x0123456789ABCDEF
TENSOR = 7
SERVER_STREAM = 65536


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


assert ["%08x" % w for w in philox([0] * 4, [0] * 2)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def uniform(i, epoch, stream):
    counter = [(i >> 2) & 0xFFFFFFFF, i >> 34, epoch, TENSOR]
    key = [SEED & 0xFFFFFFFF, (SEED >> 32) ^ stream]
    return (philox(counter, key)[i % 4] >> 8) * 2.0**-24


def bf16(x):
    return from_bf16(bf16_bits(x))


def bf16_at_least(x):
    """The smallest bf16 number of at least 2^-126 that is not below x."""
    x = max(x, 2.0**-126)
    step = 2.0 ** (math.frexp(x)[1] - 8)
    return math.ceil(x / step) * step


def limited(x, low, high):
    return max(low, min(high, x))


class LowBitCase(Case):
    def __init__(self, name, codec, n, d, block, kind, residual, op, mode, mask=False):
        super().__init__(name, n, d, 64, block, "l2", kind, residual, op, mode, mask=mask)
        self.codec = codec
        self.number, self.bits, self.has_minimum = CODECS[codec]
        self.call = 0

    def scale_and_minimum(self, block, first):
        """block: the elements of a block, 0 where they take no part; they begin at `first`."""
        z = [v for i, v in enumerate(block) if self.takes_part(first + i)]
        if not z:
            return 0.0, 0.0
        minimum = 0.0
        if self.codec == "int2":
            scale = f32(math.sqrt(block_sum(block, False) / len(z)))
        elif self.has_minimum:
            minimum = bf16(min(z) + 0.0)  # -0 becomes +0
            scale = f32(f32(max(z) - minimum) / 255)
        else:
            scale = f32(max(map(abs, z)) / (6 if self.codec == "fp4" else 127))
        if self.codec == "int8s_up":
            return (bf16_at_least(scale) if any(z) else 0.0), minimum
        scale = bf16(scale)
        return (scale if scale >= 2.0**-126 else 0.0), minimum

    def code(self, z, scale, minimum, i, stream):
        if scale == 0:
            return 0
        t = f32(f32(z - minimum) * f32(1 / scale))
        if self.codec == "fp4":
            k = sum(limit <= abs(t) for limit in THRESHOLDS)
            return k | (8 if t < 0 and k else 0)
        if self.codec == "int2":
            return limited(math.floor(t), -2, 1) & 3
        if self.has_minimum:
            return limited(round(t), 0, 255)
        t = limited(t, -127, 127)
        if self.codec == "int8":
            return round(t) & 0xFF
        floor = math.floor(t)
        return (floor + (uniform(i, self.call, stream) < f32(t - floor))) & 0xFF

    def decoded(self, code, scale, minimum):
        if scale == 0:
            return minimum
        if self.codec == "fp4":
            return (-1 if code & 8 else 1) * GRID[code & 7] * scale
        if self.codec == "int2":
            return ((code ^ 2) - 2 + 0.5) * scale
        if self.has_minimum:
            return f32(code * scale + minimum)
        return ((code ^ 128) - 128) * scale

    def encode(self, values, first, stream):
        """The packet of a piece: scales, minimums, codes."""
        scales, minimums, codes = [], [], []
        for begin, end in blocks(len(values), self.block):
            scale, minimum = self.scale_and_minimum(values[begin:end], first + begin)
            scales.append(scale)
            minimums.append(minimum)
            for i in range(begin, end):
                keep = self.takes_part(first + i)
                codes.append(self.code(values[i], scale, minimum, first + i, stream) if keep else 0)
        return scales, minimums, codes

    def decode(self, packet, first):
        scales, minimums, codes = packet
        return [self.decoded(c, scales[i // self.block], minimums[i // self.block])
                if self.takes_part(first + i) else 0.0 for i, c in enumerate(codes)]

    def run(self, x):
        n, feedback, rounded = self.n, self.mode == "ef", TYPES[self.kind][2]
        keep = TYPES[self.residual][2]
        packets = []
        for r in range(n):
            row = []
            for j in range(n):
                begin, end = self.range_of(j)
                z = [f32(x[r][i] + self.e[r][i]) if feedback else x[r][i] for i in range(begin, end)]
                z = [v if self.takes_part(begin + i) else 0.0 for i, v in enumerate(z)]
                row.append(self.encode(z, begin, r))
                for i, v in enumerate(self.decode(row[-1], begin)):
                    if feedback:
                        self.e[r][begin + i] = keep(f32(z[i] - v))
            packets.append(row)
        means, out = [], [0.0] * self.d
        for j in range(n):
            begin, end = self.range_of(j)
            values = [self.decode(packets[r][j], begin) for r in range(n)]
            y = []
            for i in range(end - begin):
                total = values[0][i]
                for r in range(1, n):
                    total = f32(total + values[r][i])
                if not self.is_sum:
                    total = f32(total / n)
                if feedback:
                    total = f32(total + self.s[begin + i])
                y.append(total if self.takes_part(begin + i) else 0.0)
            means.append(self.encode(y, begin, SERVER_STREAM + j))
            for i, v in enumerate(self.decode(means[-1], begin)):
                out[begin + i] = rounded(v)
                if feedback:
                    self.s[begin + i] = keep(f32(y[i] - out[begin + i])) if self.takes_part(begin + i) else 0.0
        self.call += 1
        return packets, means, out

    def payload(self, packet):
        scales, minimums, codes = packet
        data = b"".join(struct.pack("<H", bf16_bits(s)) for s in scales)
        if self.has_minimum:
            data += b"".join(struct.pack("<H", bf16_bits(m)) for m in minimums)
        data += b"\0" * (-len(data) % 16)
        number = sum(code << (i * self.bits) for i, code in enumerate(codes))
        return data + number.to_bytes((len(codes) * self.bits + 7) // 8, "little")

    def header(self, number, payload, exchange):
        mask_digest = self.mask_digest()
        if self.codec in ("int8s", "int8s_up"):
            mask_digest ^= ((SEED & 0xFFFFFFFF) + 0x9E3779B1 * (SEED >> 32)) % 2**32
        plain, weighted = words_sums(payload)
        fields = struct.pack(
            "<4sBBHIIQQIIIBBBBHBBHHII", b"1BIT", 1, exchange, 2, 0xC0FFEE, 0, number, self.d, TENSOR,
            mask_digest, self.block, 2, TYPES[self.kind][0], 0 if self.is_sum else 4,
            4 if self.mode == "ef" else 3, self.align, self.number, 1, 0, 1, plain, weighted)
        return fields[:12] + struct.pack("<I", folded(fields)) + fields[16:]

    def golden(self, calls=3):
        result = {k: getattr(self, k) for k in
                  ("name", "codec", "n", "d", "align", "block", "kind", "residual", "op", "mode")}
        result["seed"] = SEED
        if self.mask is not None:
            result["mask"] = [int(m) for m in self.mask]
        return self.with_calls(result, calls)


CASES = [
    LowBitCase("fp4_ef_fp32", "fp4", 3, 333, 32, "fp32", "fp32", "avg", "ef"),
    LowBitCase("fp4_plain_bf16_sum_masked", "fp4", 2, 301, 128, "bf16", "fp32", "sum", "plain", mask=True),
    LowBitCase("int8_ef_fp16_sum", "int8", 2, 261, 64, "fp16", "fp32", "sum", "ef"),
    LowBitCase("uint8mm_ef_fp32", "uint8mm", 3, 270, 96, "fp32", "bf16", "avg", "ef"),
    LowBitCase("int2_ef_bf16_masked", "int2", 3, 390, 128, "bf16", "bf16", "avg", "ef", mask=True),
    LowBitCase("int8s_plain_fp32", "int8s", 2, 200, 32, "fp32", "fp32", "avg", "plain"),
    LowBitCase("int8s_up_plain_fp32", "int8s_up", 3, 333, 32, "fp32", "fp32", "avg", "plain"),
]

if __name__ == "__main__":
    write(CASES)
