// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives of the C API.
#include "api/call.h"

using onebit::Collective;
using onebit::MakeCall;

onebitResult_t onebitAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                               onebitDataType_t datatype, onebitRedOp_t op,
                               onebitCompressor_t compressor, onebitComm_t comm,
                               onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kAllReduce,
                    .sendbuff = sendbuff,
                    .recvbuff = recvbuff,
                    .count = count,
                    .stream = stream}},
                  datatype, op);
}

namespace {

onebitResult_t Broadcast(const void* sendbuff, void* recvbuff, size_t count,
                         onebitDataType_t datatype, int root, onebitCompressor_t compressor,
                         onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kBroadcast,
                    .sendbuff = sendbuff,
                    .recvbuff = recvbuff,
                    .count = count,
                    .root = static_cast<uint32_t>(root),
                    .stream = stream}},
                  datatype, onebitSum);
}

}  // namespace

onebitResult_t onebitBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                               onebitDataType_t datatype, int root, onebitComm_t comm,
                               onebitStream_t stream) {
  return Broadcast(sendbuff, recvbuff, count, datatype, root, nullptr, comm, stream);
}

onebitResult_t onebitBroadcastCompressed(const void* sendbuff, void* recvbuff, size_t count,
                                         onebitDataType_t datatype, int root,
                                         onebitCompressor_t compressor, onebitComm_t comm,
                                         onebitStream_t stream) {
  const onebitResult_t checked =
      onebit::Guard([&] { return onebit::CheckHandle(compressor, "compressor"); });
  if (checked != onebitSuccess) return checked;
  return Broadcast(sendbuff, recvbuff, count, datatype, root, compressor, comm, stream);
}

onebitResult_t onebitSend(const void* sendbuff, size_t count, onebitDataType_t datatype, int peer,
                          onebitCompressor_t compressor, onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kSendRecv,
                    .sendbuff = sendbuff,
                    .count = count,
                    .root = static_cast<uint32_t>(peer),
                    .stream = stream}},
                  datatype, onebitSum);
}

onebitResult_t onebitRecv(void* recvbuff, size_t count, onebitDataType_t datatype, int peer,
                          onebitCompressor_t compressor, onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kSendRecv,
                    .recvbuff = recvbuff,
                    .count = count,
                    .root = static_cast<uint32_t>(peer),
                    .is_receive = true,
                    .stream = stream}},
                  datatype, onebitSum);
}

onebitResult_t onebitBarrier(onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm, nullptr, {.collective = Collective::kBarrier, .stream = stream}},
                  onebitFloat32, onebitSum);
}

onebitResult_t onebitReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                   onebitDataType_t datatype, onebitRedOp_t op,
                                   onebitCompressor_t compressor, onebitComm_t comm,
                                   onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kReduceScatter,
                    .sendbuff = sendbuff,
                    .recvbuff = recvbuff,
                    .count = recvcount,
                    .stream = stream}},
                  datatype, op);
}

onebitResult_t onebitAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                               onebitDataType_t datatype, onebitCompressor_t compressor,
                               onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kAllGather,
                    .sendbuff = sendbuff,
                    .recvbuff = recvbuff,
                    .count = sendcount,
                    .stream = stream}},
                  datatype, onebitSum);
}

onebitResult_t onebitAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                              onebitDataType_t datatype, onebitCompressor_t compressor,
                              onebitComm_t comm, onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kAllToAll,
                    .sendbuff = sendbuff,
                    .recvbuff = recvbuff,
                    .count = count,
                    .stream = stream}},
                  datatype, onebitSum);
}

onebitResult_t onebitAllToAllv(const void* sendbuff, const size_t* sendcounts,
                               const size_t* sdispls, void* recvbuff, const size_t* recvcounts,
                               const size_t* rdispls, onebitDataType_t datatype,
                               onebitCompressor_t compressor, onebitComm_t comm,
                               onebitStream_t stream) {
  return MakeCall({comm,
                   compressor,
                   {.collective = Collective::kAllToAllv,
                    .sendbuff = sendbuff,
                    .recvbuff = recvbuff,
                    .stream = stream,
                    .pairs = {{sendcounts, sdispls, recvcounts, rdispls}}}},
                  datatype, onebitSum);
}
