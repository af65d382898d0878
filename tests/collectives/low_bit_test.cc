// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Every collective with every codec that has a code for each element, with and without error
// feedback, against the scalar model: outputs of several calls and residuals byte for byte, and the
// bytes sent against their formula, so that a call that fell back to full precision would fail.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using model::LowBitModel;

constexpr uint32_t kSeed = 40'128;
constexpr size_t kCalls = 3;

// A sanitizer sees what there is to see in shorter calls of fewer ranks.
#if ONEBIT_HAS_SANITIZER
constexpr size_t kCounts[] = {0, 33, 777};
constexpr size_t kOneExchangeCounts[] = {130};
constexpr size_t kSegmented = 1001;
constexpr size_t kThreaded = 33'001;
constexpr int kMostWithThreads = 2;
#else
constexpr size_t kCounts[] = {0, 1, 33, 777, 5001};
constexpr size_t kOneExchangeCounts[] = {1, 64, 130, 4099};
constexpr size_t kSegmented = 3001;
constexpr size_t kThreaded = 60'003;
constexpr int kMostWithThreads = 3;
#endif

struct ModelCall {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

std::vector<Tensor> Tensors(const LowBitCase& c, size_t parts) {
  std::vector<Tensor> tensors;
  for (size_t rank = 0; rank < c.model.ranks; ++rank) {
    tensors.emplace_back(c.model.count * parts, c.model.type);
  }
  return tensors;
}

ModelCall Simulate(const LowBitCase& c, LowBitModel& model, std::mt19937& random) {
  ModelCall call = {Tensors(c, SendParts(c.collective, c.model.ranks)),
                    Tensors(c, ReceiveParts(c.collective, c.model.ranks))};
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (Tensor& input : call.inputs) {
    input.FillNormal(random);
    inputs.push_back(input.data());
  }
  for (Tensor& output : call.outputs) outputs.push_back(output.data());
  switch (c.collective) {
    case onebitCollectiveAllReduce:
      model.AllReduce(inputs, outputs);
      break;
    case onebitCollectiveReduceScatter:
      model.ReduceScatter(inputs, outputs);
      break;
    case onebitCollectiveAllGather:
      model.AllGather(inputs, outputs);
      break;
    case onebitCollectiveAllToAll:
    case onebitCollectiveAllToAllv:
    case onebitCollectiveSendRecv:
      model.AllToAll(inputs, outputs);
      break;
    case onebitCollectiveBroadcast:
      break;  // has no low-bit codec
  }
  return call;
}

void ExpectOutput(const Tensor& expected, const Tensor& actual, size_t call) {
  if (actual.HasBytesOf(expected)) return;
  size_t i = 0;
  while (actual.Get(i) == expected.Get(i)) ++i;
  ADD_FAILURE() << "call " << call << ": output differs from the model, first at " << i << ": "
                << actual.Get(i) << " instead of " << expected.Get(i);
}

void ExpectModel(CommGroup& group, LowBitCase c, bool is_segmented, std::mt19937& random) {
  SCOPED_TRACE(::testing::Message() << c);
  LowBitModel model(c.model);
  std::vector<ModelCall> calls;
  for (size_t call = 0; call < kCalls; ++call) calls.push_back(Simulate(c, model, random));
  group.Run([&](int rank) {
    SCOPED_TRACE(::testing::Message() << c << "; rank " << rank);
    const auto r = static_cast<size_t>(rank);
    const onebitComm_t comm = group.comm(rank);
    const UniqueCompressor compressor =
        NewCompressor(comm, c.model.count, ApiType(c.model.type), c.config());
    const uint64_t sent = StatsOf(comm).bytes_sent;
    for (size_t number = 0; number < calls.size(); ++number) {
      Tensor output(calls[number].outputs[r].count(), c.model.type);
      ASSERT_EQ(MakeCall(c.collective,
                         {.send = calls[number].inputs[r].data(),
                          .receive = output.data(),
                          .count = c.model.count,
                          .type = ApiType(c.model.type),
                          .op = c.model.is_sum ? onebitSum : onebitAvg,
                          .compressor = compressor.get()},
                         comm),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      ExpectOutput(calls[number].outputs[r], output, number);
      EXPECT_TRUE(output.HasIntactGuards());
    }
    const onebitCompressorStats_t stats = StatsOf(compressor.get());
    if (!is_segmented) {
      EXPECT_EQ(stats.wire_bytes, c.WireBytes(r));
    }
    EXPECT_EQ(StatsOf(comm).bytes_sent - sent, kCalls * stats.wire_bytes);
    EXPECT_EQ(stats.nonfinite_blocks, 0u);
    if (!c.has_feedback || c.model.ranks == 1) return;
    std::vector<float> residual = model.worker_residual(r);
    residual.resize(c.elements());
    EXPECT_EQ(WorkerResidualOf(compressor.get()), residual);
  });
}

class LowBitTest : public ::testing::TestWithParam<int> {
 protected:
  template <typename Expect>
  void ForEachCase(size_t count, const Expect& expect) {
    for (const onebitCollective_t collective :
         {onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather,
          onebitCollectiveAllToAll}) {
      for (const onebitCodec_t codec : kCodesCodecs) {
        for (const bool has_feedback : {false, true}) {
          if (has_feedback && codec == onebitCodecInt8Stochastic) continue;
          expect(RandomLowBitCase(collective, codec, has_feedback, static_cast<size_t>(GetParam()),
                                  count, random_));
          if (HasFailure()) return;
        }
      }
    }
  }

  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(LowBitTest, EveryByteIsTheModels) {
  CommGroup whole(GetParam());
  for (const size_t count : kCounts) {
    ForEachCase(count, [&](LowBitCase c) {
      // A tensor without elements always takes one exchange.
      c.is_one_exchange = c.collective == onebitCollectiveAllReduce && count == 0;
      ExpectModel(whole, c, false, random_);
    });
  }
}

TEST_P(LowBitTest, SegmentsAndThreadsChangeNoByte) {
  CommOptions options = kPatient;
  options.segment_elements = 100;
  CommGroup segments(GetParam(), options);
  options.segment_elements = 20'000;
  options.compute_threads = 2;
  CommGroup threads(GetParam(), options);
  ForEachCase(kSegmented, [&](const LowBitCase& c) { ExpectModel(segments, c, true, random_); });
  if (GetParam() > kMostWithThreads) return;  // chunks would be too short to be given to threads
  ForEachCase(kThreaded, [&](const LowBitCase& c) { ExpectModel(threads, c, true, random_); });
}

TEST_P(LowBitTest, OneExchangeHasTheResultsOfTwo) {
  CommGroup group(GetParam(), kPatientOneExchange);
  for (const size_t count : kOneExchangeCounts) {
    ForEachCase(count, [&](LowBitCase c) {
      c.is_one_exchange = c.collective == onebitCollectiveAllReduce;
      ExpectModel(group, c, false, random_);
    });
  }
}

#if ONEBIT_HAS_SANITIZER
INSTANTIATE_TEST_SUITE_P(Ranks, LowBitTest, ::testing::Values(2, 3));
#else
INSTANTIATE_TEST_SUITE_P(Ranks, LowBitTest, ::testing::Values(1, 2, 3, 4, 7));
#endif

}  // namespace
}  // namespace onebit::testing
