// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// With error feedback, what references count as lost is nothing if outputs are right, and the
// elements that are wrong otherwise, for every collective and codec.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "perf/common/all_reduce_reference.h"
#include "perf/common/chunks_reference.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

constexpr size_t kCount = 500;
constexpr int kRanks = 3;

using MakeReference = std::unique_ptr<Reference> (*)(const Case&, const Options&);

struct LossCase {
  MakeReference make;
  size_t send_elements;
  size_t recv_elements;
};
const LossCase kCollectives[] = {
    {MakeAllReduceReference, kCount, kCount},
    {MakeReduceScatterReference, kRanks* kCount, kCount},
    {MakeAllGatherReference, kCount, kRanks* kCount},
    {MakeAllToAllReference, kRanks* kCount, kRanks* kCount},
};

// Makes three calls, the last of which gives rank 0 `wrong` wrong elements.
uint64_t LostIn(const LossCase& c, const Case& row, const Options& options, size_t wrong) {
  const std::unique_ptr<Reference> reference = c.make(row, options);
  constexpr size_t kCalls = 3;
  for (size_t call = 0; call < kCalls; ++call) {
    std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(c.send_elements));
    std::vector<const void*> pointers;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<float>& input = inputs[static_cast<size_t>(rank)];
      FillSeeded(input.data(), input.size(), row.type, call, rank);
      pointers.push_back(input.data());
    }
    reference->Advance(pointers);
    const auto* expected = static_cast<const float*>(reference->Expected(call, 0));
    std::vector<float> output(expected, expected + c.recv_elements);
    for (size_t i = 0; call + 1 == kCalls && i < wrong; ++i) output[output.size() - 1 - i] += 0.5f;
    reference->Observe(pointers, output.data());
  }
  return reference->CountLostElements();
}

TEST(CodecReferenceTest, OnlyWrongElementsAreLost) {
  for (const LossCase& c : kCollectives) {
    for (const onebitCodec_t codec :
         {onebitCodecSign, onebitCodecFp4, onebitCodecInt8, onebitCodecUint8mm, onebitCodecInt2}) {
      for (const onebitRedOp_t op : {onebitSum, onebitAvg}) {
        SCOPED_TRACE(testing::Message() << "codec " << codec << " op " << op);
        const Case row = {.count = kCount, .type = onebitFloat32, .op = op, .ranks = kRanks};
        Options options;
        options.mode = Mode::kEf;
        options.codec = codec;
        options.block = 128;
        EXPECT_EQ(LostIn(c, row, options, 0), 0u);
        EXPECT_EQ(LostIn(c, row, options, 7), 7u);
      }
    }
  }
}

TEST(CodecReferenceTest, OnlyWrongElementsAreLostInTwoLevels) {
  constexpr uint32_t kHosts[kRanks] = {0, 0, 1};
  for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecFp4, onebitCodecTopk}) {
    for (const onebitRedOp_t op : {onebitSum, onebitAvg}) {
      SCOPED_TRACE(testing::Message() << "codec " << codec << " op " << op);
      const Case row = {
          .count = kCount, .type = onebitFloat32, .op = op, .ranks = kRanks, .hosts = kHosts};
      Options options;
      options.mode = Mode::kEf;
      options.codec = codec;
      options.block = 320;
      options.k = 20;
      options.hops = 2;
      EXPECT_EQ(LostIn(kCollectives[0], row, options, 0), 0u);
      EXPECT_EQ(LostIn(kCollectives[0], row, options, 7), 7u);
    }
  }
}

}  // namespace
}  // namespace onebit::perf
