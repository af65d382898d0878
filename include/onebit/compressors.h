/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Compressors between calls: their counters, and what may be changed about them. Included by
 * onebit.h, which creates and destroys them.
 */
#ifndef ONEBIT_COMPRESSORS_H_
#define ONEBIT_COMPRESSORS_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Counters and facts of a compressor. */
typedef struct {
  size_t size;    /* sizeof(onebitCompressorStats_t) as the caller was compiled; input */
  uint64_t epoch; /* calls that committed new residuals (without feedback: successful calls);
                     empty_rounds do not count */
  uint64_t nonfinite_calls; /* calls that met a NaN or infinity and changed nothing */
  uint64_t residual_resets; /* residuals lost, by Reset or by an error or NaN when not
                               transactional */
  uint64_t residual_bytes;  /* memory held for residuals, or for onebitCodecLossless */
  uint32_t exchanges;     /* exchanges per call: 1 (small tensors; sparse codes with one hop), 2, or
                             with two levels 4, and 3 in collectives of parts; in those the last
                             one carries headers only; codes other than signs leave it out without
                             feedback, as do sends and receives */
  uint32_t segments;      /* pieces of a chunk that travel on their own */
  uint64_t wire_bytes;    /* bytes this rank sends per call, headers included (exact; in an
                             all-gather with onebitModeEf about every 16th call sends 8 more to
                             each rank; in an all-to-all-v those of the last call; for sends and
                             receives those of a send; with a weight those of a rank that is
                             present; with onebitCodecLossless those of the last call) */
  uint64_t is_detached;   /* 1 if its communicator was destroyed and it was not rebound */
  uint64_t lost_elements; /* residual elements set to 0 by a rebind, because the rank that held
                             them was gone */
  uint64_t nonfinite_blocks; /* blocks of low-bit or sparse codes, or elements of bf16, with a NaN
                                or infinity that this rank has compressed or decoded; with
                                onebitModePlain only they become NaN */
  uint64_t empty_rounds;     /* calls with weights in which all ranks had 0 */
  uint64_t levels; /* 2 if calls pass inside hosts and between them (onebitCompressorConfig_t),
                      otherwise 1 */
  uint64_t network_bytes; /* the part of wire_bytes that goes to other hosts; 0 once detached */
  uint64_t full_calls;    /* onebitCodecLossless: calls that sent all elements */
} onebitCompressorStats_t;

/**
 * Sets all residuals to zero and forgets the op of earlier calls. If any call had committed,
 * residual_resets counts the reset.
 *
 * Local: call it on all ranks between the same two calls. With one exchange the next call reports
 * onebitMismatch if some ranks did not.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorReset(onebitCompressor_t compressor);

/**
 * Takes back the last call: the residuals and the epoch are what they were before it, byte for
 * byte. For trainers that discard a step whose other tensors had a NaN or infinity, as a gradient
 * scaler does: otherwise the residuals would lack what was sent to no effect.
 *
 * onebitCompressorPrime counts as a call, too. Nothing is taken back if the last call changed no
 * residual, because it failed, met a NaN or infinity, has no error feedback, or had no rank with a
 * weight; nor if there was no call since the residuals were created, reset, imported, rebound or
 * reverted. The op of earlier calls stays fixed.
 *
 * Local: call it on all ranks, of a send and its receive on both, between the same two calls. With
 * one exchange the next call reports onebitMismatch if some ranks did not.
 *
 * @return onebitInvalidUsage  also: the compressor has error feedback but is not transactional, so
 *                             it has only one generation of residuals; it belongs to a sync; or it
 *                             is lossless, and the call can be made again.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorRevert(onebitCompressor_t compressor);

/**
 * Replaces the mask. The next call drops the residuals of elements that leave.
 *
 * Local: call it on all ranks between the same two calls, with equal masks.
 *
 * @param mask As in the configuration (a bit per element), copied; NULL: all elements take part.
 * @return onebitInvalidUsage  also: `mask` is not NULL, but the compressor is for an all-to-all-v
 *                             or is lossless.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorSetMask(onebitCompressor_t compressor,
                                                  const uint8_t* mask);

/**
 * Sets the weight of this rank in the next calls, e.g. for clients of federated learning that take
 * part in some rounds only. The result is the weighted mean: the sum of w_r * v_r divided by the
 * sum of w_r, where v_r is what rank r sends (McMahan et al. 2017, algorithm 1: w_r is the client's
 * number of examples).
 *
 * With 0 the rank is absent: its input is not read, its residual stays, even for elements that
 * leave the mask, and in the first exchange it sends a header and 16 bytes to each rank, for each
 * segment (in a group: as many as otherwise). It still makes the call, reduces its chunk for the
 * others, and gets the result. Nobody needs to know beforehand who is absent. If all are, the
 * output is 0, nothing is committed, and empty_rounds of the stats counts the call.
 *
 * Local: from the first time on, all ranks set a weight between the same two calls. A weight stays
 * until it is set again. Weights are not part of a saved state, whose onebitStateGlobal counts all
 * ranks alike, and do not matter to onebitCompressorPrime. Advanced, and frozen: other collectives
 * and device memory will not get them.
 *
 * @param compressor For an allreduce or a reduce-scatter with onebitAvg, on host memory; it must
 *                   not belong to a sync. Synchronise its stream first.
 * @param weight     0, or 2^-64 to 2^64.
 * @return onebitInvalidUsage  also: the compressor is not one of those.
 * @return onebitDetached      the compressor's communicator was destroyed.
 *
 * Thread safety: one thread at a time per compressor and per communicator.
 */
ONEBIT_API onebitResult_t onebitCompressorSetWeight(onebitCompressor_t compressor, float weight);

/** Like onebitCommGetStats. Thread safety: one thread at a time per compressor. */
ONEBIT_API onebitResult_t onebitCompressorGetStats(onebitCompressor_t compressor,
                                                   onebitCompressorStats_t* stats);

/**
 * Writes the Euclidean norm of what this rank owes to later calls, its worker residual (with two
 * levels its part of its host's, and 0 if it has none), in the unit of its input: 0 before the
 * first call and with onebitModePlain. It reads the residual once, and from a device copies it
 * first. For trainers that watch whether a codec suits a tensor.
 *
 * Local. Waits for calls on streams as onebitCompressorExport does.
 *
 * @param norm Written on success. What ranks owe as servers of sums is not part of it.
 * @return onebitInvalidArgument  also: `norm` is NULL.
 *
 * Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorGetResidualNorm(onebitCompressor_t compressor,
                                                          double* norm);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_COMPRESSORS_H_ */
