#!/usr/bin/env python3
# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden file of lossless packets from the text of src/codec/FORMAT.md alone, section 22.
Run it only for a new version of the format; the file must not change.

Usage: make_golden_lossless.py FOLDER

Elements before and now follow from a rule, so that the file need not hold them: element i is
(a i + b) mod 2^w before, and the file lists those that change with their bits.
"""
import json
import pathlib
import random
import struct
import sys

BLOCK = 65536


def order(bits, w):
    """The element as a signed number in which neighbours differ by 1."""
    if bits >> (w - 1):
        bits ^= (1 << (w - 1)) - 1
    return bits - (1 << w) if bits >> (w - 1) else bits


def bits_of(number, w):
    """The inverse of `order`, of any number modulo 2^w."""
    number %= 1 << w
    return number ^ ((1 << (w - 1)) - 1) if number >> (w - 1) else number


def least(numbers):
    """The low bits for some numbers."""
    low = 0
    while sum(number < 1 << low for number in numbers) * 65536 < len(numbers) * 25036:
        low += 1
    return low


def code(number, low, full):
    """A list of bits, lowest first."""
    zeros, bits = number >> low, low
    if zeros >= 16:
        zeros, bits = 16, full
    return [0] * zeros + [1] + [number >> k & 1 for k in range(bits)]


def packed(bits):
    bits = bits + [0] * (-len(bits) % 8)
    return bytes(sum(bits[i + k] << k for k in range(8)) for i in range(0, len(bits), 8))


def block(before, now, w):
    """The word and the bytes of a block."""
    places = [i for i, (old, new) in enumerate(zip(before, now)) if old != new]
    if not places:
        return 0, b""
    gaps = [b - a - 1 for a, b in zip([-1] + places, places)]
    changes = []
    for i in places:
        distance = (order(now[i], w) - order(before[i], w)) % (1 << w)
        if distance >> (w - 1):
            distance -= 1 << w
        changes.append((int(distance < 0), abs(distance) - 1))
    g, h = least(gaps), least([number for _, number in changes])
    coded = [[sign] + code(number, h, w) for sign, number in changes]
    with_gaps = packed([bit for gap, change in zip(gaps, coded) for bit in code(gap, g, 16) + change])
    bitmap = packed([int(old != new) for old, new in zip(before, now)])
    with_bitmap = bitmap + packed([bit for change in coded for bit in change])
    elements = b"".join(struct.pack("<H" if w == 16 else "<I", new) for new in now)
    shortest = min(len(elements), len(with_bitmap), len(with_gaps))
    if len(elements) == shortest:
        form, g, h, content = 3, 0, 0, elements
    elif len(with_bitmap) == shortest:
        form, g, content = 2, 0, with_bitmap
    else:
        form, content = 1, with_gaps
    return form | g << 2 | h << 7 | len(content) << 12, content


def packet(before, now, w):
    blocks = [block(before[i : i + BLOCK], now[i : i + BLOCK], w) for i in range(0, len(now), BLOCK)]
    return b"".join(struct.pack("<I", word) for word, _ in blocks) + b"".join(b for _, b in blocks)


def case(name, w, count, changes, draw):
    """`changes` elements at random become what `draw(bits, w)` makes of them."""
    a, b = 40503, 17
    before = [(a * i + b) % (1 << w) for i in range(count)]
    now = list(before)
    for i in sorted(draw.sample(range(count), changes)):
        now[i] = name_to_rule[name](before[i], w, draw)
    changed = [[i, now[i]] for i in range(count) if now[i] != before[i]]
    return {"name": name, "type": "fp32" if w == 32 else "bf16", "count": count, "a": a, "b": b,
            "changed": changed, "packet": packet(before, now, w).hex()}


def ulp(bits, w, draw):
    return bits_of(order(bits, w) + draw.choice([-1, 1]) * draw.choice([1] * 8 + [2, 3]), w)


def far(bits, w, draw):
    return draw.getrandbits(w)


def some_far(bits, w, draw):
    return far(bits, w, draw) if draw.random() < 0.1 else ulp(bits, w, draw)


name_to_rule = {"few": ulp, "many": ulp, "most": ulp, "far": far, "wide": some_far, "two_blocks": ulp}


def main():
    draw = random.Random(22)
    cases = [
        case("few", 16, 3000, 60, draw),
        case("many", 16, 500, 150, draw),
        case("most", 16, 333, 300, draw),
        case("far", 16, 41, 40, draw),
        case("few", 32, 3000, 60, draw),
        case("most", 32, 333, 300, draw),
        case("wide", 32, 700, 100, draw),
        case("two_blocks", 16, 65536 + 77, 40, draw),
        case("few", 16, 65536 + 77, 0, draw),
    ]
    path = pathlib.Path(sys.argv[1]) / "lossless.json"
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in cases) + "\n]\n")


if __name__ == "__main__":
    main()
