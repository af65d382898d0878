# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the screenshots that browsers write: PNG of 8-bit RGB or RGBA, not interlaced."""

import pathlib
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}  # bytes of a pixel, by colour type


def paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    distances = abs(guess - left), abs(guess - above), abs(guess - corner)
    return (left, above, corner)[distances.index(min(distances))]


def unfiltered(filter_type: int, row: bytearray, previous: bytes, step: int) -> bytearray:
    """Returns a row as it was before the filter of PNG's section 9."""
    if filter_type == 2:
        return bytearray((byte + above) & 0xFF for byte, above in zip(row, previous, strict=True))
    if filter_type == 0:
        return row
    for index in range(len(row)):
        left = row[index - step] if index >= step else 0
        corner = previous[index - step] if index >= step else 0
        above = previous[index]
        row[index] = (row[index] + {1: left, 3: (left + above) // 2,
                                    4: paeth(left, above, corner)}[filter_type]) & 0xFF
    return row


def colours(path: pathlib.Path) -> dict[bytes, int]:
    """Counts pixels by RGB colour."""
    data = path.read_bytes()
    assert data.startswith(SIGNATURE), path
    position, packed, header = len(SIGNATURE), b"", b""
    while position < len(data):
        size, kind = struct.unpack_from(">I4s", data, position)
        chunk = data[position + 8:position + 8 + size]
        header = chunk if kind == b"IHDR" else header
        packed += chunk if kind == b"IDAT" else b""
        position += 12 + size
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", header)
    assert depth == 8 and colour_type in CHANNELS and interlace == 0, header
    step = CHANNELS[colour_type]
    pixels, previous = zlib.decompress(packed), bytes(width * step)
    counts: dict[bytes, int] = {}
    for row in range(height):
        start = row * (width * step + 1)
        line = unfiltered(pixels[start], bytearray(pixels[start + 1:start + 1 + width * step]), previous,
                          step)
        for at in range(0, len(line), step):
            colour = bytes(line[at:at + 3])
            counts[colour] = counts.get(colour, 0) + 1
        previous = line
    return counts
