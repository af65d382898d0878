/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * State: the residuals of compressors, saved and loaded, paid, or moved to another communicator.
 * For checkpoints, including those of jobs that continue with another number of ranks, and for jobs
 * that go on without a rank. Included by onebit.h.
 *
 *   size_t bytes;
 *   onebitCompressorExport(compressor, onebitStateGlobal, NULL, &bytes);   // how much
 *   void* state = malloc(bytes);
 *   onebitCompressorExport(compressor, onebitStateGlobal, state, &bytes);  // on all ranks
 *   // One rank writes it to a file. Later, on each rank, however many there are then:
 *   onebitCompressorImport(compressor, state, bytes);
 */
#ifndef ONEBIT_STATE_H_
#define ONEBIT_STATE_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Writes the residuals of `compressor` into `buffer`.
 *
 * onebitStateRank is local and works while the compressor is detached, too. It holds the residuals
 * of this rank as they are. With the states of the same step on all ranks a run continues bit for
 * bit as if it had not been interrupted; the epochs in the stats tell whether it is the same step.
 *
 * onebitStateGlobal is collective over the compressor's communicator: each rank calls it for its
 * compressor of the same tensor, between the same two calls, and gets the same bytes, so that one
 * copy is enough for a checkpoint. It holds the mean of the worker residuals and the server
 * residual of the whole tensor, in fp32. Their sum is what the results so far owe, so nothing of it
 * is lost when a job of another size loads it. It sends about as much as two dense allreduces of
 * `count` floats, in calls that the stats of the communicator count, and needs up to 8 MiB of
 * memory besides `buffer`.
 *
 * For a reduce-scatter the global state holds the mean of the worker residuals, for an all-gather
 * the estimates that all ranks share. Both load where the parts of all ranks together have as many
 * elements. The residuals of an all-to-all, and of a send and its receive, belong to pairs of ranks
 * and have no global state.
 *
 * src/state/STATE.md describes the bytes. They do not name the tensor: the caller must know
 * which state belongs to which.
 *
 * @param kind   Scope of the state.
 * @param buffer NULL: only *bytes is written, without communication. Otherwise receives the state;
 *               of any alignment. Undefined after an error.
 * @param bytes  In: the size of `buffer`, if it is not NULL. Out: the length of the state. For
 *               onebitModeEf and n ranks a onebitStateRank takes about 4 + 4/n bytes per element
 *               (4 + 4 with one exchange; half of it with bf16 residuals), a onebitStateGlobal 8;
 *               for onebitModePlain both take less than 200 bytes.
 * @return onebitInvalidArgument  also: *bytes is too small, and receives the size needed. Nothing
 *                                was sent.
 * @return onebitInvalidUsage     also: the mean of the residuals is not finite; the communicator is
 *                                in use by another thread; or onebitStateGlobal of an all-to-all or
 *                                of sends and receives with onebitModeEf.
 * @return onebitDetached         onebitStateGlobal: the communicator was destroyed.
 * @return onebitMismatch         onebitStateGlobal: the ranks' compressors differ, or have
 *                                committed or reset different calls; the text shows both sides. The
 *                                communicator stays usable.
 * @return onebitRemoteError      another rank could not take part, or failed; the text has its
 *                                cause.
 * @return onebitTimeout          a rank did not come within connectTimeoutMs.
 *
 * Further errors of onebitStateGlobal: those of every collective. Thread safety: one thread at a
 * time per compressor and, for onebitStateGlobal, per communicator.
 */
ONEBIT_API onebitResult_t onebitCompressorExport(onebitCompressor_t compressor,
                                                 onebitStateKind_t kind, void* buffer,
                                                 size_t* bytes);

/**
 * Replaces residuals, epoch and op of `compressor` with those of a state of onebitCompressorExport.
 *
 * Local: call it on all ranks between the same two calls, each with its own onebitStateRank or all
 * with the same onebitStateGlobal. With one exchange the next call reports onebitMismatch if the
 * ranks have loaded states of different steps.
 *
 * A onebitStateRank fits the same rank of as many ranks, with the same count, datatype, mode,
 * codec, scaleRule, block, residualType, chunkAlignment, serverResidual, number of exchanges and
 * levels, and with two levels the same ranks on each host;
 * with sparse codecs also the same k, values and efDecay, and with onebitCodecRandk the same seed.
 *
 * A onebitStateGlobal fits any number of ranks, with the same count, mode and serverResidual. The
 * datatype may differ, because residuals are in the unit of the values whatever their type; they
 * are rounded to the residual type of `compressor`. After calls with onebitSum, residuals (with
 * codecs other than onebitCodecSign: those of workers) are multiplied by the old number of ranks
 * over the new one, so that the pending amount stays the same.
 *
 * A mask is not part of the state: set it as before.
 *
 * @param blob  `bytes` bytes, of any alignment; read only. Any damaged bit and any missing or
 *              additional byte is detected.
 * @param bytes Length of the state.
 * @return onebitInvalidArgument  also: `blob` is not a state.
 * @return onebitCorrupt          the state is damaged or incomplete, or a residual is too large for
 *                                the residual type.
 * @return onebitMismatch         the state belongs to another compressor, or to a later version of
 *                                the library; the text names every difference.
 *
 * After an error the compressor is unchanged. Thread safety: one thread at a time per compressor.
 */
ONEBIT_API onebitResult_t onebitCompressorImport(onebitCompressor_t compressor, const void* blob,
                                                 size_t bytes);

/**
 * Makes a call in full precision, which also pays what earlier calls owe: the output is the exact
 * result of this call's input and all residuals. Afterwards nothing is owed, except what rounding
 * to a 16-bit `recvbuff` loses.
 *
 * In an all-gather, where ranks hold copies of each other's parts and calls send differences from
 * them, every copy is then equal to `sendbuff`. Without this function it would take many calls to
 * reach values far from 0, such as weights. In other collectives it flushes: at the end of
 * training, before a switch to full precision, or when an error must not be carried along.
 * Advanced, and frozen: collectives to come will not have it.
 *
 * Collective over the compressor's communicator, like a call of its collective. It sends 4 bytes
 * per element, as a dense call does, and a few small messages, and takes memory for both buffers in
 * fp32 while it runs. On memory of a CUDA device it blocks until it has ended: it waits for the
 * work before it on `stream`, and works on copies in host memory; it cannot be captured. A value
 * that is not finite makes the whole output NaN on every rank and changes no residual (if
 * transactional; otherwise they are reset), as in every call of a compressor. With one rank the
 * result is the input.
 *
 * @param compressor With onebitModeEf.
 * @param sendbuff   As in the compressor's calls.
 * @param recvbuff   As in the compressor's calls.
 * @param op         onebitSum or onebitAvg; ignored by onebitCollectiveAllGather and AllToAll.
 * @param stream     As for onebitAllReduce.
 * @return onebitInvalidArgument  also: the buffers overlap in part or are not aligned.
 * @return onebitInvalidUsage     also: the compressor has no error feedback, is for sends and
 *                                receives, belongs to a sync, or was used with another op; the
 *                                stream is being captured; or the thread is between
 *                                onebitGroupStart and onebitGroupEnd.
 * @return onebitMismatch         the ranks' compressors differ, or have committed or reset
 *                                different calls; the text shows both sides.
 * @return onebitRemoteError      another rank could not take part, or failed.
 * @return onebitTimeout          a rank did not come within connectTimeoutMs.
 *
 * Further errors: those of every collective. Thread safety: one thread at a time per compressor and
 * communicator.
 */
ONEBIT_API onebitResult_t onebitCompressorPrime(onebitCompressor_t compressor, const void* sendbuff,
                                                void* recvbuff, onebitRedOp_t op,
                                                onebitStream_t stream);

/**
 * Moves a compressor with its residuals to a communicator made from ranks of its own
 * (onebitCommShrink, onebitCommSplit). Collective over `newcomm`: each rank calls it for its
 * compressor of the same tensor, whether or not the old communicator was destroyed.
 *
 * If the last call failed on some ranks and succeeded on others, their epochs differ by one; all
 * take the highest. A rank that rolls forward has no output of that call and must get the results
 * of `source`, e.g. by onebitBroadcast of the parameters. `source` and epoch belong to this tensor:
 * with several tensors a step may have ended between two of them, and the epochs say which calls
 * must not be repeated. onebitOptimizerRebind (optim.h) does all of that.
 *
 * Worker residuals stay with their ranks; that of a lost rank is lost. If there are or were two
 * levels each rank gets its part of their mean, and lost elements are counted. The server residual
 * is divided anew among the ranks; parts whose rank is gone become 0, counted in lost_elements.
 * (With one exchange every rank has all of it, and nothing is lost.) For onebitSum with
 * onebitCodecSign the server residual is multiplied by the old number of ranks over the new one, so
 * that the pending amount stays the same.
 *
 * It sends about as much as a dense allreduce of `count` elements, in calls that the stats of
 * `newcomm` count, and needs up to 8 MiB of memory besides the new server residual.
 *
 * @param compressor Unchanged after an error; it can be rebound again, to `newcomm` or, if that has
 *                   failed, to its successor.
 * @param newcomm    Healthy.
 * @param source     Receives a rank of `newcomm` that has the results of the last call, the same on
 *                   every rank; -1: none has, because the rank that had them was lost before it
 *                   could pass them on.
 * @return onebitInvalidArgument  also: another compressor of `newcomm` has its tensorId.
 * @return onebitInvalidUsage     also: the compressor is not for an allreduce, nor lossless for a
 *                                broadcast (onebitBroadcastCompressed). Residuals of parts
 *                                belong to the former set of ranks: make a new compressor.
 * @return onebitMismatch         the ranks' compressors differ, come from different communicators,
 *                                or have committed or reset different calls; the text shows both
 *                                sides. `newcomm` stays usable.
 * @return onebitRemoteError      another rank could not take part, or failed; the text has its
 *                                cause.
 * @return onebitTimeout          a rank did not come within connectTimeoutMs.
 *
 * Further errors: those of every collective. Thread safety: one thread at a time per `newcomm` and
 * per `compressor`.
 */
ONEBIT_API onebitResult_t onebitCompressorRebind(onebitCompressor_t compressor,
                                                 onebitComm_t newcomm, int* source);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_STATE_H_ */
