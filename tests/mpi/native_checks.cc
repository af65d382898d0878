// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transport's own allreduce makes progress, and releases its caller's memory.
#include "tests/mpi/native_checks.h"

#include <algorithm>
#include <vector>

#include "tests/transports/test_endpoint.h"

namespace onebit::conformance {
namespace {

constexpr size_t kCount = 3'000'001;
// More parts than two polls of the endpoint can move.
constexpr size_t kLongCount = 10'000'001;

MessageRequest Start(Endpoint* endpoint, const std::vector<float>& in, std::vector<float>* out) {
  MessageRequest request = nullptr;
  endpoint->Check(endpoint->channel().AllReduce(in.data(), out->data(), in.size(), onebitFloat32,
                                                onebitSum, &request),
                  "AllReduce");
  return request;
}

size_t BytesDone(Endpoint* endpoint, MessageRequest request) {
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  endpoint->Check(endpoint->channel().Probe(*request, &header_bytes, &payload_bytes), "Probe");
  return payload_bytes;
}

// Finished parts grow and have their results, and wait reports each.
void NativeMovesInParts(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  const std::vector<float> in(kLongCount, 1);
  std::vector<float> out(kLongCount, -1);
  const auto request = Start(&endpoint, in, &out);
  size_t seen = 0;
  int parts = 0;
  endpoint.Until("the allreduce", [&] {
    if (endpoint.Test(request) == TransferState::kDone) return true;
    const size_t bytes = BytesDone(&endpoint, request);
    Expect(bytes >= seen && bytes % sizeof(float) == 0 && bytes < kLongCount * sizeof(float),
           "of the result ", bytes, " bytes are done after ", seen);
    if (bytes != seen) ++parts;
    for (size_t i = seen / sizeof(float); i < bytes / sizeof(float); ++i) {
      Expect(out[i] == static_cast<float>(endpoint.nranks()), "a result is wrong");
    }
    seen = bytes;
    return false;
  });
  Expect(parts >= 1, "an allreduce of many parts showed none");
  oob.Barrier();
}

// Rank 0 gives the allreduce up before the others join it, and may then reuse its memory.
template <typename GiveUp>
void ExpectMemoryIsLeftAlone(const Subject& subject, OutOfBand& oob, GiveUp give_up) {
  Endpoint endpoint(subject, oob);
  std::vector<float> in(kCount, 1);
  std::vector<float> out(kCount, -1);
  if (endpoint.rank() == 0) {
    Start(&endpoint, in, &out);
    endpoint.Check(endpoint.channel().Progress(), "Progress");
    give_up(&endpoint);
    std::fill(out.begin(), out.end(), -2.0f);
  }
  oob.Barrier();
  if (endpoint.rank() != 0) {
    Start(&endpoint, in, &out);
    for (int i = 0; i < 20; ++i) {
      endpoint.Check(endpoint.channel().Progress(), "Progress");
      endpoint.Check(endpoint.channel().Wait(5), "Wait");
    }
  }
  oob.Barrier();
  // Opening another endpoint completes the rest of the first.
  Endpoint second(subject, oob, 2);
  endpoint.Close();
  Expect(
      endpoint.rank() != 0 || std::all_of(out.begin(), out.end(), [](float v) { return v == -2; }),
      "memory was written after its allreduce had been given up");
  oob.Barrier();
}

void NativeStopsOnCancel(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  std::vector<float> in(kCount, 1);
  std::vector<float> out(kCount, -1);
  const auto request = Start(&endpoint, in, &out);
  endpoint.Cancel(request);
  std::fill(out.begin(), out.end(), -2.0f);
  oob.Barrier();
  for (int i = 0; i < 20; ++i) {
    endpoint.Check(endpoint.channel().Progress(), "Progress");
    endpoint.Check(endpoint.channel().Wait(5), "Wait");
  }
  Expect(std::all_of(out.begin(), out.end(), [](float v) { return v == -2; }),
         "memory was written after cancel");
  oob.Barrier();
}

void NativeStopsOnAbort(const Subject& subject, OutOfBand& oob) {
  ExpectMemoryIsLeftAlone(subject, oob, [](Endpoint* endpoint) {
    endpoint->Check(endpoint->channel().Abort(), "Abort");
  });
}

void NativeStopsOnClose(const Subject& subject, OutOfBand& oob) {
  ExpectMemoryIsLeftAlone(subject, oob, [](Endpoint* endpoint) { endpoint->Close(); });
}

constexpr Check kChecks[] = {
    {"NativeMovesInParts", 2, NativeMovesInParts},
    {"NativeStopsOnCancel", 2, NativeStopsOnCancel},
    {"NativeStopsOnAbort", 2, NativeStopsOnAbort},
    {"NativeStopsOnClose", 2, NativeStopsOnClose},
};

}  // namespace

std::span<const Check> NativeChecks() { return kChecks; }

}  // namespace onebit::conformance
