/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Collectives whose tensor has a part for every rank: reduce-scatter, all-gather, all-to-all. A
 * part of onebit.h, which includes it.
 *
 *   onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
 *   config.collective = onebitCollectiveReduceScatter;
 *   onebitCompressorCreate(&compressor, comm, recvcount, onebitFloat32, &config);
 *   onebitReduceScatter(gradients, mine, recvcount, onebitFloat32, onebitAvg, compressor, comm,
 *                       NULL);
 *
 * n is the number of ranks. Counts are NCCL's: of one part, and the larger buffer has n of them.
 *
 * Other ranks have other parts, so compressors of these collectives cannot go over to a
 * communicator of fewer ranks (onebitCompressorRebind): make new ones there. What they owe is lost,
 * unless a onebitStateGlobal of before the loss is loaded (state.h).
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
 * Dense: as onebitAllReduce. Compressed: each rank adds its residual, sends signs and scales of
 * part r to rank r, and averages what it receives in rank order in fp32 (times n for onebitSum),
 * rounded once to `datatype`. The mean is not compressed again, so there is no server residual:
 * sum of outputs + mean of residuals = sum of mean inputs, up to the last rounding to a 16-bit
 * type, which is not fed back. With one rank the result is the input, 0 outside the mask.
 *
 * With a compressor, a NaN or an infinity in any part on any rank, or an output that overflows its
 * type, makes the whole output NaN on every rank and changes no residual, as in onebitAllReduce;
 * ranks end the call by telling each other (64 bytes to each). Without one only the elements that
 * meet it are not finite, and ranks whose part has none of these do not hear of it.
 *
 * @param sendbuff   n * recvcount elements. In place: recvbuff == sendbuff + rank * recvcount; no
 *                   other overlap.
 * @param recvbuff   recvcount elements. Undefined after an error.
 * @param recvcount  elements of a part, wherever its boundaries fall; with a compressor, the count
 *                   it was created with.
 * @param op         onebitSum or onebitAvg. A compressor's first call fixes it until Reset.
 * @param compressor of onebitCollectiveReduceScatter; NULL sends full precision.
 * @return onebitInvalidArgument  also: the compressor is for another collective; the text names
 *                                both.
 *
 * Other parameters, errors and thread safety as for onebitAllReduce. Mirrors ncclReduceScatter.
 */
ONEBIT_API onebitResult_t onebitReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, onebitDataType_t datatype,
                                              onebitRedOp_t op, onebitCompressor_t compressor,
                                              onebitComm_t comm, onebitStream_t stream);

/**
 * Gathers `sendcount` elements of every rank on all; those of rank r are part r of recvbuff. With a
 * compressor, sends one bit per element to each rank.
 *
 * Dense: copies. onebitModeSign: signs and scales of the input; the sender's own part is decoded,
 * too, so that all ranks hold the same bytes. onebitModeEf: every rank holds an fp32 value of every
 * element of every rank (zero at first), all the same; a rank sends signs and scales of the
 * difference between its input and what is held of it, all add that to what they hold, and the
 * output is what they hold then. Input that stays the same arrives within some calls; what one call
 * loses is part of the next difference. Meant for tensors that change little from call to call.
 *
 * With onebitModeEf ranks compare what they hold, by a count of calls in every call and a checksum
 * in about every 16th. A difference is onebitMismatch, and puts `comm` out of use: the compressor
 * was reset on some ranks only, memory was damaged, or processors do not compute alike. Go on with
 * a new communicator and new compressors on all ranks.
 *
 * With a compressor, a NaN or an infinity makes the whole output NaN on every rank, and without one
 * the elements that it is in, as in onebitReduceScatter.
 *
 * @param sendbuff   sendcount elements. In place: sendbuff == recvbuff + rank * sendcount; no other
 *                   overlap.
 * @param recvbuff   n * sendcount elements. Undefined after an error.
 * @param sendcount  elements of a part; with a compressor, the count it was created with.
 * @param compressor of onebitCollectiveAllGather; NULL sends full precision.
 *
 * Other parameters, errors and thread safety as for onebitReduceScatter. Mirrors ncclAllGather.
 */
ONEBIT_API onebitResult_t onebitAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          onebitDataType_t datatype, onebitCompressor_t compressor,
                                          onebitComm_t comm, onebitStream_t stream);

/**
 * Sends part j of sendbuff to rank j, for every j; what rank r sends becomes part r of recvbuff.
 * With a compressor, sends one bit per element.
 *
 * Compressed: signs and scales for every destination, and the scale is rounded to `datatype` before
 * it is sent. onebitModeEf keeps a residual for every destination: sum of outputs + residual = sum
 * of inputs for every pair of ranks, in any type. That helps where a part means the same in every
 * call (gradients), and does harm where it does not (tokens, activations): take onebitModeSign
 * there. What a rank sends itself is copied as it is (0 outside the mask).
 *
 * With a compressor, a NaN or an infinity makes the whole output NaN on every rank, and without one
 * the elements that it is in, as in onebitReduceScatter.
 *
 * @param sendbuff   n * count elements; must not overlap recvbuff.
 * @param recvbuff   n * count elements. Undefined after an error.
 * @param count      elements for each pair of ranks; with a compressor, the count it was created
 *                   with.
 * @param compressor of onebitCollectiveAllToAll; NULL sends full precision.
 *
 * Other parameters, errors and thread safety as for onebitReduceScatter. Mirrors ncclAlltoAll.
 */
ONEBIT_API onebitResult_t onebitAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                                         onebitDataType_t datatype, onebitCompressor_t compressor,
                                         onebitComm_t comm, onebitStream_t stream);

/**
 * Sends sendcounts[j] elements from sendbuff + sdispls[j] to rank j, for every j, and receives
 * recvcounts[r] elements of rank r at recvbuff + rdispls[r]. All counts may differ between pairs
 * and from call to call; what is kept of a call is its memory, so that calls that are not larger
 * allocate nothing. With a compressor, sends one bit per element (onebitModeSign).
 *
 * Nothing else is written in recvbuff; its ranges must not overlap each other, which is not
 * checked. With a compressor, a NaN or an infinity makes all ranges NaN on every rank, as in
 * onebitReduceScatter.
 *
 * @param sendcounts n counts, in elements; read before the call returns, as are the other arrays.
 * @param sdispls    n displacements, in elements.
 * @param recvcounts recvcounts[r] must equal sendcounts[this rank] of rank r.
 * @param rdispls    n displacements, in elements.
 * @param compressor of onebitCollectiveAllToAllv and with a count of 0; NULL sends full precision.
 * @return onebitInvalidArgument  a NULL array, a range that is NULL or not aligned, ranges sent and
 *                                received that overlap, sendcounts[rank] != recvcounts[rank].
 * @return onebitMismatch         a rank sends another count than this one expects of it; the text
 *                                has both and names it. Without a compressor, a rank whose own
 *                                counts agree may have been through before, and gets the error from
 *                                its next call.
 *
 * Other parameters, errors and thread safety as for onebitAllToAll. Mirrors MPI_Alltoallv.
 */
ONEBIT_API onebitResult_t onebitAllToAllv(const void* sendbuff, const size_t* sendcounts,
                                          const size_t* sdispls, void* recvbuff,
                                          const size_t* recvcounts, const size_t* rdispls,
                                          onebitDataType_t datatype, onebitCompressor_t compressor,
                                          onebitComm_t comm, onebitStream_t stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_PARTS_H_ */
