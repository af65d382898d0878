# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The time that no allreduce of a kind can beat on a link and a machine: pure arithmetic.

A limit is the larger of two times. Each counts only what cannot be avoided, so it errs on the low
side, and a share of the limit that is reached errs on the low side, too.

*On the wire.* In full precision every one of G hosts must send, and receive, at least 2(G-1)/G of a tensor,
however many ranks it has: all G parts of their sum but its own must leave it once to be summed, and the sums
of all parts but one must come back. A compressed allreduce has the same two exchanges and sends in each one
bit, or four, per element and, per block, one scale. Bytes are counted as a shaped interface counts them: a
full TCP segment carries 1448 bytes (1500 less 20 of IP, 20 of TCP and 12 of its time stamps) in a frame of
1514 (the preamble, check sum and gap of real Ethernet are not seen there). Acknowledgements, the 64-byte
headers of messages, short frames, latency and what the sender must wait for are left out.

*In memory.* A tensor that is larger than the caches must come from memory, and the result must go there:

* full precision: read the input, write the output: 2 passes over the tensor;
* compressed with error feedback: read the input and the residual, write the next residual and the output: 4
  passes; and the server of a chunk, 1/n of the tensor, reads and writes its residual: 2/n passes. The L ranks
  of a host may share one residual for what they send, so that each reads and writes 1/L of it: 2 + 2/L + 2/n
  passes. (A transactional residual is written to another place than it is read from: as many bytes.)

Packets, of 32 bits or fewer, can stay in the caches on their way to the wire and from it, so they
are not counted, and neither are the copies that the kernel makes of them. All ranks share the cores of
this one machine, in the lab as well: n ranks, on whatever hosts, move n times as many bytes, over
min(n, cores) cores at the speed at which one core copies. (Cores share memory channels; this errs on the low
side, too.)
"""

import dataclasses

from reporting.rank_layout import Layout
from reporting.systems import Kind

FRAME_BYTES = 1514
SEGMENT_BYTES = 1448
ELEMENT_BITS = 32
BLOCK_ELEMENTS = 4096
SCALE_BITS = 32
FP4_BLOCK_ELEMENTS = 128
FP4_SCALE_BITS = 16
# Bits sent per element and exchange. (A multi-pass system has one scale per rank, so its own limit is
# lower by SCALE_BITS / BLOCK_ELEMENTS, 0.8 %. It is far from either.)
BITS_PER_ELEMENT = {Kind.DENSE: ELEMENT_BITS, Kind.ONE_BIT: 1 + SCALE_BITS / BLOCK_ELEMENTS,
                    Kind.FOUR_BITS: 4 + FP4_SCALE_BITS / FP4_BLOCK_ELEMENTS}


@dataclasses.dataclass(frozen=True)
class Limit:
    """Both times of one row, None where there is none: no wire, or a tensor that caches hold."""

    wire_us: float | None
    memory_us: float | None

    @property
    def us(self) -> float | None:
        return max((time for time in (self.wire_us, self.memory_us) if time is not None),
                   default=None)

    @property
    def cause(self) -> str:
        """What binds: "wire", "memory", or nothing that is known."""
        if self.us is None:
            return ""
        return "wire" if self.us == self.wire_us else "memory"


def exchange_factor(parties: int) -> float:
    """Bytes that each of them must send, in tensors. Of ranks: nccl-tests' factor from algbw to busbw."""
    return 2 * (parties - 1) / parties


def two_levels_on_link(hosts: int) -> float:
    """Tensors that a host sends if its ranks act as one. No allreduce sends less."""
    return exchange_factor(hosts)


def ring_on_link(ranks: int) -> float:
    """Tensors that a host sends in a ring of all ranks: of its ranks, one has its next neighbour elsewhere."""
    return exchange_factor(ranks)


def flat_on_link(hosts: int, ranks_per_host: int) -> float:
    """Tensors that a host sends if each of its ranks exchanges chunks with all ranks of other hosts."""
    return ranks_per_host * exchange_factor(hosts)


def wire_bytes(kind: Kind, size: int, hosts: int) -> float:
    """Bytes that each host must send for a tensor of `size` bytes, without any header."""
    return two_levels_on_link(hosts) * size * BITS_PER_ELEMENT[kind] / ELEMENT_BITS


def wire_us(kind: Kind, size: int, hosts: int, bits_per_second: float) -> float:
    framed_bytes = wire_bytes(kind, size, hosts) * FRAME_BYTES / SEGMENT_BYTES
    return framed_bytes * 8 / bits_per_second * 1e6


def memory_bytes(kind: Kind, size: int, layout: Layout) -> float:
    """Bytes that each rank must read from and write to memory."""
    if kind is Kind.DENSE:
        return 2 * size
    return (2 + 2 / layout.ranks_per_host + 2 / layout.ranks) * size


def memory_us(kind: Kind, size: int, layout: Layout, cores: int, copy_gbps: float) -> float:
    """`copy_gbps`: what one core reads and writes, together, while it copies."""
    all_bytes = layout.ranks * memory_bytes(kind, size, layout)
    return all_bytes / (min(layout.ranks, cores) * copy_gbps * 1e9) * 1e6


def limit(kind: Kind, size: int, layout: Layout, *, bits_per_second: float | None, cores: int,
          copy_gbps: float, cache_bytes: int | None) -> Limit:
    """Of one row. `bits_per_second` None: no wire. `cache_bytes` None: not known, taken as none."""
    in_cache = cache_bytes is not None and layout.ranks * memory_bytes(kind, size, layout) <= cache_bytes
    return Limit(
        wire_us(kind, size, layout.hosts, bits_per_second) if bits_per_second is not None else None,
        None if in_cache else memory_us(kind, size, layout, cores, copy_gbps))
