#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of bf16 from the text of src/codec/FORMAT.md alone, section 20.
Run it only for a new version of the format; the files must not change.

Usage: make_golden_bf16.py FOLDER
"""
import struct

from make_golden import TYPES, Case, bf16_bits, f32, folded, from_bf16, words_sums, write

TENSOR = 7
# Ties, numbers below the normal ones, zeros of both signs, and the largest that is not infinite once rounded.
SPECIAL = [1 + 2.0**-8, 1 + 3 * 2.0**-8, -2.0**-140, 2.0**-133, -0.0, 0.0, 2.0**127 * (2 - 2.0**-8 - 2.0**-20)]


class Bf16Case(Case):
    def __init__(self, name, n, d, kind, residual, op, mode, mask=False, specials=False):
        super().__init__(name, n, d, 64, 0, "l2", kind, residual, op, mode, mask=mask)
        self.specials = specials
        self.call = 0

    def inputs(self):
        """What every rank gives. Rank r has special elements where the others have zeros."""
        x = [self.input() for _ in range(self.n)]
        for k, value in enumerate(SPECIAL if self.specials else []):
            for r in range(self.n):
                x[r][10 + k] = value if k % self.n == r else 0.0
        return x

    def encode(self, values, first):
        return [bf16_bits(v) if self.takes_part(first + i) else 0 for i, v in enumerate(values)]

    def run(self, x):
        n, feedback, rounded = self.n, self.mode == "ef", TYPES[self.kind][2]
        keep = TYPES[self.residual][2]
        packets = []
        for r in range(n):
            row = []
            for j in range(n):
                begin, end = self.range_of(j)
                z = [f32(x[r][i] + self.e[r][i]) if feedback else x[r][i] for i in range(begin, end)]
                row.append(self.encode(z, begin))
                for i, code in enumerate(row[-1]):
                    if feedback:
                        lost = f32(z[i] - from_bf16(code)) if self.takes_part(begin + i) else 0.0
                        self.e[r][begin + i] = keep(lost)
            packets.append(row)
        means, out = [], [0.0] * self.d
        for j in range(n):
            begin, end = self.range_of(j)
            y = []
            for i in range(end - begin):
                total = from_bf16(packets[0][j][i])
                for r in range(1, n):
                    total = f32(total + from_bf16(packets[r][j][i]))
                if not self.is_sum:
                    total = f32(total / n)
                if feedback:
                    total = f32(total + self.s[begin + i])
                y.append(total)
            means.append(self.encode(y, begin))
            for i, code in enumerate(means[-1]):
                keeps = self.takes_part(begin + i)
                out[begin + i] = rounded(from_bf16(code)) if keeps else 0.0
                if feedback:
                    self.s[begin + i] = keep(f32(y[i] - out[begin + i])) if keeps else 0.0
        self.call += 1
        return packets, means, out

    @staticmethod
    def payload(packet):
        return struct.pack("<%dH" % len(packet), *packet)

    def header(self, number, payload, exchange):
        mask_digest = self.mask_digest()
        plain, weighted = words_sums(payload)
        fields = struct.pack(
            "<4sBBHIIQQIIIBBBBHBBHHII", b"1BIT", 1, exchange, 2, 0xC0FFEE, 0, number, self.d, TENSOR,
            mask_digest, 0, 2, TYPES[self.kind][0], 0 if self.is_sum else 4,
            8 if self.mode == "ef" else 7, self.align, 0, 1, 0, 1, plain, weighted)
        return fields[:12] + struct.pack("<I", folded(fields)) + fields[16:]

    def golden(self, calls=3):
        result = {k: getattr(self, k) for k in ("name", "n", "d", "align", "kind", "residual", "op", "mode")}
        result["codec"] = "bf16"
        result["block"] = 1
        result["seed"] = 0
        if self.mask is not None:
            result["mask"] = [int(m) for m in self.mask]
        return self.with_calls(result, calls)


CASES = [
    Bf16Case("bf16_plain_fp32", 3, 333, "fp32", "fp32", "avg", "plain", specials=True),
    Bf16Case("bf16_ef_fp32", 3, 201, "fp32", "fp32", "avg", "ef"),
    Bf16Case("bf16_ef_fp16_sum_masked", 2, 301, "fp16", "bf16", "sum", "ef", mask=True),
]

if __name__ == "__main__":
    write(CASES)
