/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Collectives whose tensor has a part for every rank: reduce-scatter, all-gather, all-to-all; sends
 * and receives between two ranks; and broadcasts of what has changed. Included by onebit.h.
 *
 *   onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
 *   config.collective = onebitCollectiveReduceScatter;
 *   onebitCompressorCreate(&compressor, comm, recvcount, onebitFloat32, &config);
 *   onebitReduceScatter(gradients, mine, recvcount, onebitFloat32, onebitAvg, compressor, comm,
 *                       NULL);
 *
 * n is the number of ranks. As in NCCL, a count is that of one part, and the larger buffer holds n
 * parts.
 *
 * A NaN or infinity, with a compressor, makes the whole output NaN on every rank and changes no
 * residual, as in onebitAllReduce; the ranks end the call by notifying each other (64 bytes to
 * each). With onebitModePlain and a codec other than onebitCodecSign, only the affected blocks
 * (elements of bf16) become NaN, where they are received, and no other rank is notified. Without a
 * compressor only the affected elements are not finite, and ranks whose output has none of them are
 * not notified.
 *
 * With fewer ranks the tensor has other parts, so compressors of these collectives cannot be
 * rebound (onebitCompressorRebind): make new ones for the new communicator. Their pending residuals
 * are lost, unless you load a onebitStateGlobal that was saved before the loss (state.h).
 */
#ifndef ONEBIT_PARTS_H_
#define ONEBIT_PARTS_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Reduces n parts of `recvcount` elements over all ranks; rank r gets part r. With a compressor,
 * sends one bit per element of the other ranks' parts.
 *
 * Dense: as onebitAllReduce. Compressed: each rank adds its residual and sends signs and scales of
 * part r to rank r, which averages what it receives in rank order in fp32 (times n for onebitSum)
 * and rounds once to `datatype`. The mean is not compressed again, so there is no server residual:
 * sum of outputs + mean of residuals = sum of mean inputs, up to the last rounding to a 16-bit
 * type, which is not fed back. With one rank the result is the input, 0 outside the mask. An output
 * that overflows its type counts as not finite.
 *
 * @param sendbuff   n * recvcount elements. In place: recvbuff == sendbuff + rank * recvcount; no
 *                   other overlap.
 * @param recvbuff   recvcount elements. Undefined after an error.
 * @param recvcount  Elements of a part, wherever its boundaries fall; with a compressor, the count
 *                   it was created with.
 * @param op         With a compressor onebitSum or onebitAvg; its first call fixes it until Reset.
 * @param compressor For onebitCollectiveReduceScatter; NULL sends full precision.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce. Mirrors ncclReduceScatter.
 */
ONEBIT_API onebitResult_t onebitReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, onebitDataType_t datatype,
                                              onebitRedOp_t op, onebitCompressor_t compressor,
                                              onebitComm_t comm, onebitStream_t stream);

/**
 * Gathers `sendcount` elements of every rank on all ranks; those of rank r become part r of
 * recvbuff. With a compressor, sends one bit per element to each rank.
 *
 * Dense: copies. onebitModePlain: signs and scales of the input; the sender decodes its own part,
 * too, so that all ranks hold the same bytes.
 *
 * onebitModeEf is meant for tensors that change little from call to call. Every rank keeps an fp32
 * estimate of every element of every rank, zero at first and the same everywhere. A rank sends
 * signs and scales of the difference between its input and the estimate of it; all ranks add them
 * to the estimate, which is the output. For an input that stays the same, the estimate reaches it
 * within some calls; what one call loses is part of the next difference.
 *
 * With onebitModeEf the ranks compare their estimates, by a count of calls in every call and a
 * checksum in about every 16th. A difference is onebitMismatch and puts `comm` out of use: the
 * compressor was reset on some ranks only, memory was damaged, or the processors compute
 * differently. Continue with a new communicator and new compressors on all ranks.
 *
 * @param sendbuff   sendcount elements. In place: sendbuff == recvbuff + rank * sendcount; no other
 *                   overlap.
 * @param recvbuff   n * sendcount elements. Undefined after an error.
 * @param sendcount  Elements of a part; with a compressor, the count it was created with.
 * @param compressor For onebitCollectiveAllGather; NULL sends full precision.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce. Mirrors ncclAllGather.
 */
ONEBIT_API onebitResult_t onebitAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          onebitDataType_t datatype, onebitCompressor_t compressor,
                                          onebitComm_t comm, onebitStream_t stream);

/**
 * Makes recvbuff on all ranks what sendbuff is on rank `root`, bit for bit, and sends only what has
 * changed since the compressor's last call: for weights that a trainer passes on to other processes
 * step by step. Where 2 % of the elements of bfloat16 have changed, as in a step of AdamW, that
 * takes 10 bits for each of them. Which rank is root may change from call to call. An all-gather
 * with such a compressor does the same for the part of every rank.
 *
 * All ranks keep a copy of the tensor where its buffers are, and packets, which on the root may
 * become as long as the tensor. On a device kernels find and apply changes; packets pass through
 * host memory, and so do all elements where these are sent. In each call ranks first compare
 * digests of their copies. The root sends all elements if one differs, as that of a rank does which
 * was not there in the last call, or if changes would take as many bytes (full_calls). What ranks
 * receive is checked before recvbuff changes: where a call has failed, recvbuff is as it was. The
 * communicator is then out of use. Continue with another one (onebitCommShrink, or one that has
 * more ranks) and onebitCompressorRebind, which for the compressor of a broadcast is local, leaves
 * `source` at -1 and may take ranks on: these create compressors of the same count, type and
 * tensorId. Compressors of all-gathers cannot be rebound.
 *
 * @param compressor With onebitCodecLossless, for onebitCollectiveBroadcast.
 *
 * The call waits on the host for its work, also with a CUDA stream, cannot be captured or grouped,
 * and is made of two dense calls, as comm stats count it.
 *
 * Other parameters, errors and thread safety as for onebitBroadcast.
 */
ONEBIT_API onebitResult_t onebitBroadcastCompressed(const void* sendbuff, void* recvbuff,
                                                    size_t count, onebitDataType_t datatype,
                                                    int root, onebitCompressor_t compressor,
                                                    onebitComm_t comm, onebitStream_t stream);

/**
 * Sends part j of sendbuff to rank j, for every j; what rank r sends becomes part r of recvbuff.
 * With a compressor, sends one bit per element.
 *
 * Compressed: signs and scales for every destination; each scale is rounded to `datatype` before it
 * is sent. onebitModeEf keeps a residual for every destination: sum of outputs + residual = sum of
 * inputs for every pair of ranks, in any type. That helps where a part has the same meaning in
 * every call (gradients), and does harm where it does not (tokens, activations): use
 * onebitModePlain there. The part that a rank sends to itself is copied (0 outside the mask).
 *
 * @param sendbuff   n * count elements; must not overlap recvbuff.
 * @param recvbuff   n * count elements. Undefined after an error.
 * @param count      Elements for each pair of ranks; with a compressor, the count it was created
 *                   with.
 * @param compressor For onebitCollectiveAllToAll; NULL sends full precision.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce. Mirrors ncclAlltoAll.
 */
ONEBIT_API onebitResult_t onebitAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                                         onebitDataType_t datatype, onebitCompressor_t compressor,
                                         onebitComm_t comm, onebitStream_t stream);

/**
 * Sends sendcounts[j] elements from sendbuff + sdispls[j] to rank j, for every j, and receives
 * recvcounts[r] elements from rank r at recvbuff + rdispls[r]. With a compressor (onebitModePlain
 * only), sends its codes: one bit per element, unless the codec says otherwise.
 *
 * Counts may differ between pairs and from call to call. Memory is kept for the next call, so that
 * calls that are no larger allocate nothing. Nothing in recvbuff but the given ranges is written;
 * with a compressor of signs a NaN or infinity makes all of these NaN on every rank.
 *
 * @param sendbuff   Must not overlap what is received; NULL only if all its counts are 0.
 * @param sendcounts n counts, in elements; read before the call returns, as are the other arrays.
 * @param sdispls    n displacements, in elements.
 * @param recvbuff   Its ranges must not overlap each other, which is not checked. NULL only if all
 *                   its counts are 0.
 * @param recvcounts n counts; recvcounts[r] must equal sendcounts[this rank] on rank r.
 * @param rdispls    n displacements, in elements.
 * @param compressor For onebitCollectiveAllToAllv, created with a count of 0; NULL sends full
 *                   precision.
 * @return onebitInvalidArgument  also: an array is NULL, a range is NULL or not aligned, a range
 *                                sent overlaps one received, or sendcounts[rank] !=
 *                                recvcounts[rank].
 * @return onebitMismatch         a rank sends a different count from the one that this rank
 *                                expects; the text has the rank and both counts. Without a
 *                                compressor, a rank whose own counts agree may have finished the
 *                                call before, and gets the error from its next call.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce. Mirrors MPI_Alltoallv.
 */
ONEBIT_API onebitResult_t onebitAllToAllv(const void* sendbuff, const size_t* sendcounts,
                                          const size_t* sdispls, void* recvbuff,
                                          const size_t* recvcounts, const size_t* rdispls,
                                          onebitDataType_t datatype, onebitCompressor_t compressor,
                                          onebitComm_t comm, onebitStream_t stream);

/**
 * Sends `count` elements to rank `peer`, which receives them by onebitRecv.
 *
 * Between onebitGroupStart and onebitGroupEnd, sends and receives make progress together, so that
 * two ranks can exchange buffers and a ring can move; they run after the other calls of the group.
 * Outside a group, without a stream, a call blocks until its buffer is the caller's again: a
 * long message waits for its receiver, so a ring of blocking sends never ends. The calls of a pair
 * of ranks match in their order.
 *
 * onebitModePlain, for values that differ from call to call, such as activations: a block with a
 * NaN or infinity decodes to NaN; with onebitCodecSign the whole output does.
 *
 * onebitModeEf, for values that change little: both ranks hold an fp32 estimate of every element, 0
 * at first. A message has the difference from it, which both add to it, as in onebitAllGather; the
 * output is the estimate. A NaN or infinity, or an estimate too large for `datatype`, makes the
 * whole output NaN and changes neither estimate. The two ranks compare a count of calls in every
 * call and, but over nccl, a checksum in about every 16th; a difference is onebitMismatch. Reset,
 * or load states of the same call (onebitStateRank), on both ranks.
 *
 * @param sendbuff   `count` elements; may be NULL if `count` is 0.
 * @param count      Elements; equal on both ranks and, with a compressor, to its count.
 * @param datatype   Equal on both ranks.
 * @param peer       A rank of `comm`. This rank itself, in a group with the matching receive: the
 *                   elements are copied, not compressed.
 * @param compressor For onebitCollectiveSendRecv; NULL sends full precision. Each side has its own,
 *                   with equal tensorId, count, mode, codec and block. A group needs one for each
 *                   call. With onebitModeEf the first call fixes peer and direction until Reset.
 * @param stream     As for onebitAllReduce.
 * @return onebitInvalidArgument  also: `peer` is not a rank; the buffer is NULL or not aligned.
 * @return onebitInvalidUsage     also: `peer` is this rank outside a group, or without the
 *                                matching call in it; or the compressor holds what this rank
 *                                exchanged with another rank, or in the other direction.
 * @return onebitMismatch         the two ranks' calls differ; the text names both sides. The sender
 *                                of a short message may have returned already: its next call then
 *                                fails. Over nccl only packets of equal length are compared; other
 *                                calls that differ hang, or give wrong results (memory.h).
 *
 * Further errors: those of every collective. Thread safety: one thread at a time per `comm` and per
 * `compressor`. Mirrors ncclSend.
 */
ONEBIT_API onebitResult_t onebitSend(const void* sendbuff, size_t count, onebitDataType_t datatype,
                                     int peer, onebitCompressor_t compressor, onebitComm_t comm,
                                     onebitStream_t stream);

/**
 * Receives `count` elements from rank `peer`, which sends them by onebitSend (above).
 *
 * @param recvbuff `count` elements. Undefined after an error.
 *
 * Other parameters, errors and thread safety: those of onebitSend. Mirrors ncclRecv.
 */
ONEBIT_API onebitResult_t onebitRecv(void* recvbuff, size_t count, onebitDataType_t datatype,
                                     int peer, onebitCompressor_t compressor, onebitComm_t comm,
                                     onebitStream_t stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_PARTS_H_ */
