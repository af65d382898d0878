// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives whose tensor has one part per rank, selected by number, so that one test serves them
// all.
#pragma once

#include <cstddef>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::testing {

inline constexpr onebitCollective_t kChunkCollectives[] = {
    onebitCollectiveReduceScatter, onebitCollectiveAllGather, onebitCollectiveAllToAll};

inline const char* TextOf(onebitCollective_t collective) {
  switch (collective) {
    case onebitCollectiveAllReduce:
      return "AllReduce";
    case onebitCollectiveReduceScatter:
      return "ReduceScatter";
    case onebitCollectiveAllGather:
      return "AllGather";
    case onebitCollectiveAllToAll:
      return "AllToAll";
    case onebitCollectiveAllToAllv:
      return "AllToAllv";
    case onebitCollectiveSendRecv:
      return "SendRecv";
    case onebitCollectiveBroadcast:
      return "Broadcast";
  }
  return "?";
}

// Parts of `count` elements in a call's buffer on `ranks` ranks.
inline size_t SendParts(onebitCollective_t collective, size_t ranks) {
  return collective == onebitCollectiveAllReduce || collective == onebitCollectiveAllGather ? 1
                                                                                            : ranks;
}
inline size_t ReceiveParts(onebitCollective_t collective, size_t ranks) {
  return collective == onebitCollectiveAllReduce || collective == onebitCollectiveReduceScatter
             ? 1
             : ranks;
}

struct ChunkCall {
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitAvg;  // if the collective has one
  onebitCompressor_t compressor = nullptr;
  onebitStream_t stream = nullptr;
};

// An all-to-all-v with the same count for every pair.
inline onebitResult_t MakeEqualPairs(const ChunkCall& call, onebitComm_t comm) {
  int ranks = 0;
  if (const onebitResult_t result = onebitCommCount(comm, &ranks); result != onebitSuccess) {
    return result;
  }
  const std::vector<size_t> counts(static_cast<size_t>(ranks), call.count);
  std::vector<size_t> begins(counts.size());
  for (size_t peer = 0; peer < counts.size(); ++peer) begins[peer] = peer * call.count;
  return onebitAllToAllv(call.send, counts.data(), begins.data(), call.receive, counts.data(),
                         begins.data(), call.type, call.compressor, comm, nullptr);
}

// Makes any collective call with a single count.
inline onebitResult_t MakeCall(onebitCollective_t collective, const ChunkCall& call,
                               onebitComm_t comm) {
  switch (collective) {
    case onebitCollectiveAllReduce:
      return onebitAllReduce(call.send, call.receive, call.count, call.type, call.op,
                             call.compressor, comm, call.stream);
    case onebitCollectiveReduceScatter:
      return onebitReduceScatter(call.send, call.receive, call.count, call.type, call.op,
                                 call.compressor, comm, call.stream);
    case onebitCollectiveAllGather:
      return onebitAllGather(call.send, call.receive, call.count, call.type, call.compressor, comm,
                             call.stream);
    case onebitCollectiveAllToAll:
      return onebitAllToAll(call.send, call.receive, call.count, call.type, call.compressor, comm,
                            call.stream);
    case onebitCollectiveAllToAllv:
      return MakeEqualPairs(call, comm);
    case onebitCollectiveSendRecv:
      break;  // its two sides are different calls
    case onebitCollectiveBroadcast:
      break;  // its root sends, and the others receive
  }
  return onebitInvalidArgument;
}

}  // namespace onebit::testing
