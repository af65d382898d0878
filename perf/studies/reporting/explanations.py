# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What a report says beside its charts and tables, in paragraphs."""

from reporting import limits
from reporting.units import digits, size_text

SPEEDUP = (
    "Above 1x one bit is faster (blue), below 1x it is slower (orange). The best system is chosen anew "
    "for every cell, onebit's own dense allreduce included. ≈: the repetitions of the two overlap, or "
    "one of them was measured only once, so the sign of the difference is not certain. Point at a cell "
    "for the times.")

BREAK_EVEN = (
    "The size of the tensor from which on one bit is faster than the best dense system, up to the "
    "largest size measured. Between two measured sizes it is where the lines of both cross.")

READING = {
    "Time":
        "of one call against the size of the tensor, both axes logarithmic. Where calls wait for "
        "messages the lines are flat; where they wait for bytes they rise with the size. Points are "
        "medians of the repetitions, vertical bars go from the fastest to the slowest repetition. The "
        "dashed line is the limit of full precision, the dotted one that of one bit, and one of dashes and "
        "dots that of four bits, as far as they come near to what was measured.",
    "Bus bandwidth":
        "is nccl-tests' busbw: 2(n−1)/n times the size over the time, for n ranks. For codes the size is that of "
        "the tensor, not of the packets, so that it compares; it may well exceed the speed of the link.",
    "Share of the limit":
        "is the limit of a system's own kind over its time. A system in full precision at 100 % fills "
        "the link; no better program exists for it, only sending less.",
    "The vertical line":
        "stands where one bit breaks even. A gap in a line is a run that failed, gave wrong results or "
        "was not made; the reason is given below the charts. All figures are in the table.",
}

WIRE = (
    "Bits that onebit's transport counted per rank, divided by the elements and by 2(G−1)/G, so that "
    "any number of hosts, G, has the same formula: one bit and a scale of 32 bits for each "
    f"{limits.BLOCK_ELEMENTS} elements. Hollow points: what the interface of the busiest host counted "
    "from the start to the end of a command with this size only, over its calls: with headers of TCP/IP, "
    "acknowledgements, and what ranks say to each other to meet and between calls. Where hosts have several "
    "ranks there are hollow points only, because the transport counts what stays inside a host, too. Small "
    "tensors lie above the formula, because every message has a header of 64 bytes, and because the smallest "
    "(up to 65536 elements among 2 ranks, 8192 among 4 and 2340 among 8, unless set otherwise) are sent whole "
    "to every rank in a single exchange, which costs bytes and saves a round of messages.")

LIMIT = "The limit of a row is the larger of two times, both of which count only what cannot be avoided:"

LIMIT_WIRE = (
    "Wire: 2(G−1)/G of the tensor must leave each of G hosts, however many ranks it has, in full precision "
    f"or as codes and scales, in frames of {limits.FRAME_BYTES} bytes for {limits.SEGMENT_BYTES} bytes of "
    "payload. Latency, acknowledgements and headers of messages are left out. (The multi-pass system has "
    "fewer scales; its own limit is 0.8 % lower.)")

LIMIT_IN_LAB = (
    "In the lab the kernel copies every byte once more on each side, on the same cores that compress and "
    "reduce; on real hosts network cards do. That is not in the limit, so fast links show shares well "
    "below 100 % here. A shaped link lets a first burst pass at once, so calls that are smaller than "
    "that burst may come out above 100 %.")

METHOD = (
    "All systems ran on one machine. Hosts of a network are network namespaces with a shaped link each; all "
    "ranks, on whatever host, share the machine's cores, so that compression costs more here than on hosts of "
    "their own. Systems took turns, one repetition each. The time of a repetition is the mean over the ranks, "
    "as in nccl-tests; points and tables show the median of the repetitions. Calls that take seconds were "
    "measured in one repetition only, and say so; what there was no time for at all is called not measured.")

CHECKED = (
    "The first call of each row and repetition was compared with the exact sum; a relative error above "
    "1e-5 in full precision, 0.5 with four bits or 1.2 with one makes the row a failure. In the first repetition "
    "sizes up to 1 MiB were, on shared memory and on the fastest link, also checked element by element, "
    "those of codes against a model of their arithmetic; a wrong element makes the row a failure.")

FIGURES = (
    "Median time of one call, with the range of the repetitions; the best in full precision is bold. †: "
    "another repetition failed, for the reason given above the table. The last columns are those of one "
    "bit: its limit, what its library counted for a rank's call, what the busiest interface did, and the error of a "
    "single call relative to the exact result, which the next calls repay.")


def limit_of_memory(cores: int, copy_gbps: float, cache_bytes: int | None) -> str:
    """`cache_bytes` None: not known."""
    if cache_bytes is None:
        caches = ("The size of the caches is not known, so small tensors, which caches hold, have a limit "
                  "of memory that could be beaten.")
    else:
        caches = f"Tensors that the caches ({size_text(cache_bytes)}) hold have no limit of memory."
    return ("Memory: in full precision the input is read and the output written; with codes the residual "
            "is read and written, too, which the ranks of a host may share, and so is the server's, for n ranks "
            "1/n of the tensor. All ranks share this "
            f"machine's {cores} cores, each of which moves {digits(copy_gbps)} GB/s while it copies. "
            f"{caches}")
