/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What compressors remember, saved and loaded: checkpoints, also of jobs that go on with another
 * number of ranks. Part of onebit.h, which includes it.
 *
 *   size_t bytes;
 *   onebitCompressorExport(compressor, onebitStateGlobal, NULL, &bytes);   // how much
 *   void* state = malloc(bytes);
 *   onebitCompressorExport(compressor, onebitStateGlobal, state, &bytes);  // on all ranks
 *   // one of them writes it to a file; later, on each rank of as many as there are then:
 *   onebitCompressorImport(compressor, state, bytes);
 */
#ifndef ONEBIT_STATE_H_
#define ONEBIT_STATE_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Writes what `compressor` remembers into `buffer`, for a checkpoint.
 *
 * onebitStateRank is local, and works while the compressor is detached, too. It has the residuals
 * of this rank as they are; with the states of the same step on all ranks a run continues bit for
 * bit as if it had not been interrupted (the epochs in the stats tell whether it is the same step).
 *
 * onebitStateGlobal is collective over the compressor's communicator: each rank calls it for its
 * compressor of the same tensor, between the same two calls, and gets the same bytes, so that one
 * of them is enough for a checkpoint. It has the mean of the worker residuals and the server
 * residual of the whole tensor, in fp32. The sum of the two is what the results so far owe, so
 * nothing of it is lost when a job of another size loads it. It sends about what two dense
 * allreduces of `count` floats do, in calls that the stats of the communicator count, and needs up
 * to 8 MiB of memory besides `buffer`.
 *
 * Of a reduce-scatter it has the mean of the worker residuals, of an all-gather what all ranks
 * hold; they are loaded where the parts of all ranks together have as many elements. The residuals
 * of an all-to-all belong to pairs of ranks: of these there is onebitStateRank only.
 *
 * src/compressor/STATE.md describes the bytes. Tensors, or their names, are not in them: which
 * state is of which tensor is the caller's to know.
 *
 * @param kind   whose residuals.
 * @param buffer NULL: only *bytes is written, without any communication. Otherwise receives the
 *               state; of any alignment. Undefined after an error.
 * @param bytes  in: room in `buffer`, if it is not NULL. Receives the length of the state; not
 *               NULL. For onebitModeEf and n ranks about 4 + 4/n bytes per element (4 + 4 with one
 *               exchange; half of it with bf16 residuals) for onebitStateRank, 8 for
 *               onebitStateGlobal; less than 200 bytes for onebitModeSign.
 * @return onebitInvalidArgument  a NULL argument, an unknown kind, or *bytes is too small; it then
 *                                receives what is needed. Nothing was sent.
 * @return onebitInvalidUsage     a call is using the compressor, another thread is inside a call on
 *                                its communicator, which may also have failed before; the mean of
 *                                residuals is not finite; calls with it are pending on a stream; or
 *                                onebitStateGlobal of an all-to-all.
 * @return onebitDetached         onebitStateGlobal: its communicator was destroyed.
 * @return onebitMismatch         onebitStateGlobal: the ranks' compressors differ, or have
 *                                committed or reset different calls; the text shows both sides. The
 *                                communicator stays usable.
 * @return onebitRemoteError      another rank could not take part, or failed; the text has its
 *                                cause.
 * @return onebitTimeout          a rank did not come within ONEBIT_CONNECT_TIMEOUT_MS.
 * @return onebitOutOfMemory      not enough memory.
 *
 * Other errors of onebitStateGlobal are those of onebitAllReduce. Thread safety: one thread at a
 * time per compressor and, for onebitStateGlobal, per communicator.
 */
ONEBIT_API onebitResult_t onebitCompressorExport(onebitCompressor_t compressor,
                                                 onebitStateKind_t kind, void* buffer,
                                                 size_t* bytes);

/**
 * Replaces what `compressor` remembers by a state of onebitCompressorExport: residuals, epoch and
 * op. Local. Do it on all ranks between the same two calls: each its own onebitStateRank, or all
 * the same onebitStateGlobal. With one exchange the next call reports onebitMismatch if ranks have
 * loaded states of different steps.
 *
 * A onebitStateRank fits the same rank of as many ranks, with the same count, datatype, mode,
 * scaleRule, block, residualType, chunkAlignment, serverResidual and number of exchanges. A
 * onebitStateGlobal fits any number of ranks, with the same count, mode and serverResidual; the
 * residuals are rounded to the residual type of `compressor`. Its datatype may be another, as
 * residuals are in the unit of the values, whatever their type. After calls with onebitSum both
 * residuals are multiplied by the number of ranks then over that now, so that as much is pending as
 * was.
 *
 * A mask is no part of the state: set it as before.
 *
 * @param blob  `bytes` bytes, of any alignment; read only. Damage of any bit, and missing or
 *              additional bytes, are found.
 * @return onebitInvalidArgument  a NULL argument, or `blob` is no state.
 * @return onebitCorrupt          the state is damaged or not complete, or a residual is too large
 *                                for the residual type.
 * @return onebitMismatch         the state is of another compressor, or of a later version of the
 *                                library; the text names every difference.
 * @return onebitInvalidUsage     a call is using the compressor.
 *
 * After an error the compressor is what it was. Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorImport(onebitCompressor_t compressor, const void* blob,
                                                 size_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_STATE_H_ */
