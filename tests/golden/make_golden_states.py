#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes states.json, saved states from the text of src/state/STATE.md alone.

It shares nothing with the library. Run it only for a new version of the states, into a new file: every later
library loads the states of this one.

Usage: make_golden_states.py FOLDER
"""
import json
import os
import struct
import sys

from make_golden import pack

MASK = 2**64 - 1
IDENTITY, WORKER, SERVER, SYNC, ACCUMULATOR, COMPRESSOR, OPTIMIZER, VALUES, ELEMENTS = range(1, 10)
COMPRESSOR_RANK, COMPRESSOR_ALL, SYNC_KIND, OPTIMIZER_RANK, OPTIMIZER_ALL = range(1, 6)
CODECS = {"sign_plain": 1, "sign": 2, "fp4": 4}


def digest(data, seed):
    def mix(s, w):
        s = (s ^ w) * 0x9E3779B97F4A7C15 & MASK
        return (s << 29 | s >> 35) & MASK

    s = mix(seed, len(data))
    data += b"\0" * (-len(data) % 8)
    for (word,) in struct.iter_unpack("<Q", data):
        s = mix(s, word)
    return mix(s ^ s >> 31, 0)


def blob(kind, sections):
    """Sections by tag."""
    padded = {tag: data + b"\0" * (-len(data) % 8) for tag, data in sorted(sections.items())}
    table = b"".join(struct.pack("<IIQQ", tag, 0, len(sections[tag]), digest(data, tag))
                     for tag, data in padded.items())
    length = 40 + len(table) + sum(map(len, padded.values()))
    head = b"1BITSTAT" + struct.pack("<IIQII", 1, kind, length, 40 + len(table), len(padded))
    return head + struct.pack("<Q", digest(table, digest(head, 0))) + table + b"".join(padded.values())


def values(count, first):
    """Multiples of 1/64 with few bits, so that sums over ranks are exact and bf16 holds each."""
    return [((first + 7 * i) % 127 - 63) / 64 for i in range(count)]


class Residuals:
    """A compressor of an allreduce and what it owes."""

    def __init__(self, count, ranks, codec="sign", op="avg", block=64, align=64, residual="fp32",
                 has_server=True, one_exchange=False, epoch=3):
        self.count, self.ranks, self.codec, self.op, self.block = count, ranks, codec, op, block
        self.align, self.residual, self.has_server = align, residual, has_server
        self.one_exchange, self.epoch = one_exchange, epoch

    def identity(self, rank, is_all):
        flags = (1 if self.has_server else 0) | (2 if self.one_exchange else 0)
        residual = 0 if is_all or self.residual == "fp32" else 2
        rule = 5 if self.codec == "fp4" else 0  # the format of low-bit codes; the scale rule of signs, l2
        return struct.pack(
            "<QQQIIIHBBBBBBBxxx", self.count, self.epoch, self.epoch, self.block, self.ranks,
            0 if is_all else rank, self.align, 2, CODECS[self.codec], 0, rule, residual, flags,
            {"sum": 0, "avg": 4}[self.op])

    def served(self, rank):
        if self.one_exchange:
            return 0, self.count
        chunk = self.align * -(-self.count // (self.ranks * self.align))
        return min(rank * chunk, self.count), min((rank + 1) * chunk, self.count)

    def state(self, rank):
        sections = {IDENTITY: self.identity(rank, False)}
        if self.codec != "sign_plain":
            sections[WORKER] = pack(values(self.count, 5 * rank), self.residual)
            if self.has_server:
                begin, end = self.served(rank)
                sections[SERVER] = pack(values(self.count, 11)[begin:end], self.residual)
        return blob(COMPRESSOR_RANK, sections)

    def state_of_all(self):
        sections = {IDENTITY: self.identity(0, True), WORKER: pack(values(self.count, 3), "fp32")}
        if self.has_server:
            sections[SERVER] = pack(values(self.count, 11), "fp32")
        return blob(COMPRESSOR_ALL, sections)


def compressor_case(name, is_all=False, **options):
    tensor = Residuals(count=150, ranks=3, **options)
    states = [tensor.state_of_all()] if is_all else [tensor.state(rank) for rank in range(tensor.ranks)]
    return {"name": name, "of": "compressor", "kind": "all" if is_all else "rank", "ranks": tensor.ranks,
            "count": tensor.count, "codec": tensor.codec, "op": tensor.op, "block": tensor.block,
            "residual": tensor.residual, "server": tensor.has_server, "one_exchange": tensor.one_exchange,
            "states": [state.hex() for state in states]}


def sync_case(name, is_all):
    count, ranks, interval, step = 500, 2, 3, 5
    tensor = Residuals(count, ranks, epoch=1)
    # Steps 0 to 2 were accumulated and sent with the last of them, 3 and 4 are pending.
    head = struct.pack("<QQQQQQQfI", count, step, 2, 0, interval, 0, interval, 0.375, 0)
    states = [blob(SYNC_KIND, {SYNC: head, ACCUMULATOR: pack(values(count, 2 if is_all else rank), "fp32"),
                               COMPRESSOR: tensor.state_of_all() if is_all else tensor.state(rank)})
              for rank in range(1 if is_all else ranks)]
    return {"name": name, "of": "sync", "kind": "all" if is_all else "rank", "ranks": ranks, "interval": interval,
            "states": [state.hex() for state in states]}


def optimizer_case(name, algorithm, is_all=False):
    ranks, counts = 2, [9, 0, 16]  # the last segment is dense
    count, steps, dense = sum(counts), 6, 4
    number = ["one_bit_adam", "one_bit_lamb", "zero_one_adam"].index(algorithm)
    is_zero_one = algorithm == "zero_one_adam"
    tensor = Residuals(counts[0], ranks, block=4096, one_exchange=True, epoch=2)
    schedule = [0, 0, 5, 1, 2, 3, 5] if is_zero_one else [dense, 1, 0, 0, 0, 0, 0]
    freeze_rule = 0 if is_zero_one else dense

    def state(rank):
        was = struct.pack("<QQIIII", count, len(counts), number, 0, ranks, rank) + struct.pack("<d", 0.9)
        was += struct.pack("<7q", *schedule) + struct.pack("<II", 0, 0) + struct.pack("<q", freeze_rule)
        for i, elements in enumerate(counts):
            was += struct.pack("<QII", elements, 1 if i == 2 else 0, 0)
        beta1 = 1.0 if is_zero_one else 0.9**steps
        beta2 = 1.0 if is_zero_one else 0.9**dense
        kept = struct.pack("<5Qddd", steps, 0, dense, steps - dense, 0, beta1, beta2, 0.05)
        if is_zero_one:
            kept += struct.pack("<QQdd", steps, steps, 0.0, 0.05)
            elements = 5
        else:
            kept += struct.pack("<ddQQQdd", 0.9**steps, beta2, steps, dense, dense, 1.0, 1.0)
            if algorithm == "one_bit_lamb":
                for i in range(len(counts)):
                    kept += struct.pack("<4d", 0.5 + i, 0.25 + i, 1.5 + i, 2.5 + i)
            elements = 4 if algorithm == "one_bit_lamb" else 3
        floats = b"".join(pack(values(count, 64 + 5 * i), "fp32") for i in range(elements))
        return blob(OPTIMIZER_ALL if is_all else OPTIMIZER_RANK,
                    {COMPRESSOR: tensor.state_of_all() if is_all else tensor.state(rank), OPTIMIZER: was,
                     VALUES: kept, ELEMENTS: floats})

    return {"name": name, "of": algorithm, "kind": "all" if is_all else "rank", "ranks": ranks,
            "states": [state(rank).hex() for rank in range(1 if is_all else ranks)]}


CASES = [
    compressor_case("ef"),
    compressor_case("ef_sum", op="sum"),
    compressor_case("ef_bf16", residual="bf16"),
    compressor_case("one_exchange", one_exchange=True),
    compressor_case("tensor_block", block=0),
    compressor_case("without_server", has_server=False),
    compressor_case("sign_plain", codec="sign_plain", has_server=False),
    compressor_case("fp4", codec="fp4"),
    compressor_case("all_ranks", is_all=True),
    compressor_case("all_ranks_sum", is_all=True, op="sum"),
    sync_case("sync", False),
    sync_case("sync_all_ranks", True),
    optimizer_case("adam", "one_bit_adam"),
    optimizer_case("adam_all_ranks", "one_bit_adam", is_all=True),
    optimizer_case("lamb", "one_bit_lamb"),
    optimizer_case("zero_one", "zero_one_adam"),
]


def main():
    with open(os.path.join(sys.argv[1], "states.json"), "w", encoding="ascii") as file:
        json.dump(CASES, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
