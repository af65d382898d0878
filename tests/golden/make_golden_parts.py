#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of reduce-scatter, all-gather and all-to-all from the text of
src/codec/FORMAT.md alone, sections 2, 7 and 11 to 13. Run it only for a new version of the format.

Usage: make_golden_parts.py FOLDER
"""
import struct

from make_golden import TYPES, Case, bits_of, f32, folded, pack, words_sums, write

COLLECTIVES = {"reduce_scatter": 3, "all_gather": 4, "all_to_all": 5}


class PartsCase(Case):
    def __init__(self, name, collective, n, q, block, rule, kind, residual, op, mode, mask=False):
        super().__init__(name, n, n * q, 1, block, rule, kind, residual, op, mode, mask=mask)
        self.collective, self.q, self.chunk, self.align = collective, q, q, 0
        self.rounded = TYPES[kind][2]
        self.rounds_scale = collective == "all_to_all" or (collective == "all_gather" and mode == "sign")

    def scale_at(self, scales, i):
        return scales[i // self.block if self.block else 0]

    def compress(self, r, parts, values):
        """Packets of rank r for `parts`; values: the elements of these, one list each."""
        pieces = []
        for part, x in zip(parts, values):
            first = part * self.q
            z = [f32(v + self.e[r][first + i]) if self.mode == "ef" else v for i, v in enumerate(x)]
            pieces.append(([v if self.takes_part(first + i) else 0.0 for i, v in enumerate(z)], first))
        if self.collective == "reduce_scatter":
            all_scales = self.sums_to_scales(pieces)
        else:
            all_scales = [self.sums_to_scales([piece])[0] for piece in pieces]
        packets = []
        for (z, first), scales in zip(pieces, all_scales):
            if self.rounds_scale:
                scales = [self.rounded(a) for a in scales]
            packets.append((scales, bits_of(z)))
            for i, v in enumerate(z):
                if self.mode != "ef" or self.collective == "all_gather":
                    break
                keep = self.takes_part(first + i)
                self.e[r][first + i] = self.lost(v, self.scale_at(scales, i), self.residual) if keep else 0.0
        return packets

    def decoded(self, packet, i):
        scales, bits = packet
        a = self.scale_at(scales, i)
        return -a if bits[i // 8] >> (i % 8) & 1 else a

    def split(self, x):
        return [x[j * self.q:(j + 1) * self.q] for j in range(self.n)]

    def run(self, x):
        return getattr(self, "run_" + self.collective)(x)

    def run_reduce_scatter(self, x):
        packets = [self.compress(r, range(self.n), self.split(x[r])) for r in range(self.n)]
        outputs = []
        for j in range(self.n):
            out = []
            for i in range(self.q):
                total = None
                for r in range(self.n):
                    scales, bits = packets[r][j]
                    w = f32(self.scale_at(scales, i) / self.n)
                    w = -w if bits[i // 8] >> (i % 8) & 1 else w
                    total = w if total is None else f32(total + w)
                value = f32(total * self.n) if self.is_sum else total
                out.append(self.rounded(value) if self.takes_part(j * self.q + i) else 0.0)
            outputs.append(out)
        return packets[0][1], outputs

    def run_all_gather(self, x):
        packets = [self.compress(r, [r], [x[r]])[0] for r in range(self.n)]
        out = []
        for r in range(self.n):
            for i in range(self.q):
                element, value = r * self.q + i, self.decoded(packets[r], i)
                if self.mode == "ef":
                    h = f32(self.e[0][element] - value) if self.takes_part(element) else 0.0
                    for rank in range(self.n):
                        self.e[rank][element] = h
                    out.append(self.rounded(f32(0.0 - h)))
                else:
                    out.append(value if self.takes_part(element) else 0.0)
        return packets[0], [out] * self.n

    def run_all_to_all(self, x):
        outputs = [[] for _ in range(self.n)]
        first_packet = None
        for r in range(self.n):
            others = [j for j in range(self.n) if j != r]
            parts = self.split(x[r])
            packets = dict(zip(others, self.compress(r, others, [parts[j] for j in others])))
            if r == 0:
                first_packet = packets[1]
            for j in range(self.n):
                for i in range(self.q):
                    value = parts[j][i] if j == r else self.decoded(packets[j], i)
                    outputs[j].append(value if self.takes_part(j * self.q + i) else 0.0)
        return first_packet, outputs

    def header(self, number, payload, exchange):
        has_replica = self.collective == "all_gather" and self.mode == "ef"
        digest = 0
        if self.mask is not None:
            digest = folded(bits_of([-1.0 if m else 0.0 for m in self.mask])) or 1
        plain, weighted = words_sums(payload)
        op = 4 if self.op == "avg" and self.collective == "reduce_scatter" else 0
        fields = struct.pack(
            "<4sBBBBIIQQIIIBBBBHBBHHII", b"1BIT", 1, exchange, 2, number if has_replica else 0, 0xC0FFEE, 0,
            number, self.q, 7, digest, self.block, COLLECTIVES[self.collective], TYPES[self.kind][0], op,
            2 if self.mode == "ef" else 1, 0, 1 if self.l1 else 0, 8 if has_replica else 0, 0, 1, plain,
            weighted)
        return fields[:12] + struct.pack("<I", folded(fields)) + fields[16:]

    def golden(self, calls=3):
        result = {k: getattr(self, k) for k in
                  ("name", "collective", "n", "q", "block", "rule", "kind", "residual", "op", "mode")}
        if self.mask is not None:
            result["mask"] = bits_of([-1.0 if m else 0.0 for m in self.mask]).hex()
        result["calls"] = []
        sent = self.q if self.collective == "all_gather" else self.d
        for number in range(calls):
            x = [self.input()[:sent] for _ in range(self.n)]
            packet, outputs = self.run(x)
            payload = pack(packet[0], "fp32") + packet[1]
            result["calls"].append({
                "x": [pack(v, self.kind).hex() for v in x],
                "packet": payload.hex(),  # from rank 0 to rank 1
                "header1": self.header(number, payload, 1).hex(),
                "header2": self.header(number, b"", 2).hex(),
                "out": [pack(v, self.kind).hex() for v in outputs],
            })
        if self.mode == "ef":
            result["e"] = [pack(v, self.residual).hex() for v in self.e]
        return result


CASES = [
    PartsCase("reduce_scatter_ef", "reduce_scatter", 3, 133, 64, "l2", "fp32", "fp32", "avg", "ef"),
    PartsCase("reduce_scatter_ef_sum", "reduce_scatter", 3, 77, 0, "l1", "fp16", "bf16", "sum", "ef", mask=True),
    PartsCase("all_gather_ef", "all_gather", 3, 133, 64, "l2", "fp32", "fp32", "sum", "ef", mask=True),
    PartsCase("all_gather_ef_bf16", "all_gather", 2, 77, 0, "l1", "bf16", "fp32", "sum", "ef"),
    PartsCase("all_gather_sign", "all_gather", 3, 70, 64, "l2", "fp16", "fp32", "sum", "sign"),
    PartsCase("all_to_all_ef", "all_to_all", 3, 75, 64, "l2", "fp16", "fp32", "sum", "ef", mask=True),
    PartsCase("all_to_all_ef_bf16", "all_to_all", 2, 133, 0, "l1", "bf16", "bf16", "sum", "ef"),
]

if __name__ == "__main__":
    write(CASES)
