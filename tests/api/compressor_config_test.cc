// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Members of a compressor's configuration: defaults, limits, and errors that name the member.
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "api/compressor_config.h"
#include "api/handles.h"
#include "tests/support/comm_group.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

using Change = std::function<void(onebitCompressorConfig_t&)>;

class CompressorConfigTest : public ::testing::Test {
 protected:
  onebitResult_t Create(const Change& change, size_t count = 100,
                        onebitDataType_t type = onebitFloat32) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    change(config);
    onebitCompressor_t handle = nullptr;
    const onebitResult_t result =
        onebitCompressorCreate(&handle, group_.comm(0), count, type, &config);
    EXPECT_EQ(handle == nullptr, result != onebitSuccess);
    compressor_.reset(handle);
    return result;
  }
  // Expects a refusal whose text contains the member's name, its value and the values it may have.
  void ExpectRefused(const Change& change, const std::string& member, const std::string& value) {
    SCOPED_TRACE(member + " = " + value);
    EXPECT_EQ(Create(change), onebitInvalidArgument);
    const std::string text = onebitGetLastError(nullptr);
    EXPECT_NE(text.find(member + " is " + value + ", but must be "), std::string::npos) << text;
  }
  const Compressor::Config& config() { return compressor_->planned.compressor.config(); }

  CommGroup group_{2};
  UniqueCompressor compressor_;
};

TEST_F(CompressorConfigTest, DefaultsAreTheHeaders) {
  onebitCompressor_t handle = nullptr;
  ASSERT_EQ(onebitCompressorCreate(&handle, group_.comm(0), 100, onebitBfloat16, nullptr),
            onebitSuccess);
  compressor_.reset(handle);
  EXPECT_EQ(config().codec.kind, CodecKind::kEf);
  EXPECT_EQ(config().count, 100u);
  EXPECT_EQ(config().type, kernels::DataType::kBf16);
  EXPECT_EQ(config().codec.rule, kernels::ScaleRule::kL2);
  EXPECT_EQ(config().codec.block, 4096u);
  EXPECT_EQ(config().residual_type, kernels::DataType::kF32);
  EXPECT_TRUE(config().is_transactional);
  EXPECT_EQ(config().chunk_alignment, 64u);
  EXPECT_TRUE(config().has_server_residual);
  EXPECT_EQ(config().tensor_id, 0u);
  EXPECT_EQ(compressor_->planned.compressor.mask(0), nullptr);
}

// Programs that were compiled before the structure had cuts.
TEST_F(CompressorConfigTest, TheFormerSizeTakesTheDefaultsOfWhatCameLater) {
  EXPECT_EQ(Create([](auto& c) {
              c.size = offsetof(onebitCompressorConfig_t, cuts);
              c.block = 64;
              c.cutCount = 7;  // not part of that size
            }),
            onebitSuccess);
  EXPECT_EQ(config().codec.block, 64u);
  EXPECT_EQ(config().cuts, nullptr);
  EXPECT_EQ(Create([](auto& c) { c.size = offsetof(onebitCompressorConfig_t, cuts) - 8; }),
            onebitInvalidArgument);
}

TEST_F(CompressorConfigTest, CutsAreForBlocksOfSignsInAnAllReduce) {
  static constexpr size_t kCuts[] = {8, 9};
  const auto with_cuts = [](onebitCompressorConfig_t& c) {
    c.cuts = kCuts;
    c.cutCount = 2;
  };
  ASSERT_EQ(Create(with_cuts), onebitSuccess);
  EXPECT_EQ(config().cuts->size(), 2u);
  EXPECT_EQ(onebitCompressorSetWeight(compressor_.get(), 1), onebitInvalidUsage);
  for (const Change& change :
       std::vector<Change>{[](auto& c) { c.block = ONEBIT_BLOCK_TENSOR; },
                           [](auto& c) { c.codec = onebitCodecFp4; },
                           [](auto& c) { c.collective = onebitCollectiveReduceScatter; }}) {
    ExpectRefused(
        [&](auto& c) {
          with_cuts(c);
          change(c);
        },
        "cutCount", "2");
  }
  EXPECT_EQ(Create([](auto& c) { c.cutCount = 1; }), onebitInvalidArgument);
  EXPECT_EQ(Create(with_cuts, 9), onebitInvalidArgument);
}

TEST_F(CompressorConfigTest, MembersAreTaken) {
  ASSERT_EQ(Create([](auto& c) {
              c.mode = onebitModePlain;
              c.scaleRule = onebitScaleL1;
              c.block = ONEBIT_BLOCK_TENSOR;
              c.residualType = onebitBfloat16;
              c.transactional = 0;
              c.chunkAlignment = 8;
              c.serverResidual = 0;
              c.tensorId = 4'294'967'295;
            }),
            onebitSuccess);
  EXPECT_EQ(config().codec.kind, CodecKind::kSign);
  EXPECT_EQ(config().codec.rule, kernels::ScaleRule::kL1);
  EXPECT_EQ(config().codec.block, 0u);
  EXPECT_EQ(config().residual_type, kernels::DataType::kBf16);
  EXPECT_FALSE(config().is_transactional);
  EXPECT_EQ(config().chunk_alignment, 8u);
  EXPECT_FALSE(config().has_server_residual);
  EXPECT_EQ(config().tensor_id, 4'294'967'295u);
}

TEST_F(CompressorConfigTest, EveryCodecHasABlockOfItsOwn) {
  const std::pair<onebitCodec_t, uint32_t> blocks[] = {{onebitCodecSign, 4096},
                                                       {onebitCodecFp4, 128},
                                                       {onebitCodecInt8, 256},
                                                       {onebitCodecUint8mm, 256},
                                                       {onebitCodecInt2, 4096}};
  for (const auto& [codec, block] : blocks) {
    ASSERT_EQ(Create([&, number = codec](auto& c) { c.codec = number; }), onebitSuccess);
    EXPECT_EQ(config().codec.block, block);
    EXPECT_EQ(config().codec.kind,
              codec == onebitCodecSign ? CodecKind::kEf : CodecKind::kLowBitEf);
  }
  ASSERT_EQ(Create([](auto& c) {
              c.codec = onebitCodecInt8Stochastic;
              c.mode = onebitModePlain;
              c.seed = 0x1234'5678'9abc'def0;
            }),
            onebitSuccess);
  EXPECT_EQ(config().codec.kind, CodecKind::kLowBit);
  EXPECT_EQ(config().codec.low_bit, kernels::LowBitCodec::kInt8Stochastic);
  EXPECT_EQ(config().codec.block, 256u);
  EXPECT_EQ(config().seed, 0x1234'5678'9abc'def0u);
}

TEST_F(CompressorConfigTest, LowBitCodecsHaveLimitsOfTheirOwn) {
  const auto with = [](onebitCodec_t codec, const Change& change) {
    return [=](onebitCompressorConfig_t& c) {
      c.codec = codec;
      change(c);
    };
  };
  for (const int block : {32, 96, 65536}) {
    EXPECT_EQ(Create(with(onebitCodecFp4, [&](auto& c) { c.block = block; })), onebitSuccess);
  }
  for (const int block : {-32, 0, 1, 16, 33, 65568}) {
    ExpectRefused(with(onebitCodecInt8, [&](auto& c) { c.block = block; }), "block",
                  std::to_string(block));
  }
  ExpectRefused(with(onebitCodecInt2, [](auto& c) { c.scaleRule = onebitScaleL2; }), "scaleRule",
                "0");
  ExpectRefused(with(onebitCodecInt8Stochastic, [](auto&) {}), "mode", "1");
  for (const int codec : {-1, 10}) {
    ExpectRefused([&](auto& c) { c.codec = codec; }, "codec", std::to_string(codec));
  }
}

TEST_F(CompressorConfigTest, Bf16HasNoBlock) {
  ASSERT_EQ(Create([](auto& c) { c.codec = onebitCodecBf16; }), onebitSuccess);
  EXPECT_EQ(config().codec, (Codec{.kind = CodecKind::kBf16Ef, .block = 1}));
  ASSERT_EQ(Create([](auto& c) {
              c.codec = onebitCodecBf16;
              c.mode = onebitModePlain;
              c.collective = onebitCollectiveReduceScatter;
            }),
            onebitSuccess);
  EXPECT_EQ(config().codec.Text(), "plain bf16");
  for (const int block : {ONEBIT_BLOCK_TENSOR, 64, 4096, -1}) {
    ExpectRefused(
        [&](auto& c) {
          c.codec = onebitCodecBf16;
          c.block = block;
        },
        "block", std::to_string(block));
    EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("nothing but ONEBIT_UNDEF_INT"),
              std::string::npos);
  }
  const auto with = [](const Change& change) {
    return [=](onebitCompressorConfig_t& c) {
      c.codec = onebitCodecBf16;
      change(c);
    };
  };
  ExpectRefused(with([](auto& c) { c.scaleRule = onebitScaleL2; }), "scaleRule", "0");
  ExpectRefused(with([](auto& c) { c.k = 5; }), "k", "5");
}

TEST_F(CompressorConfigTest, SparseCodecsHaveDefaults) {
  ASSERT_EQ(Create([](auto& c) { c.codec = onebitCodecTopk; }), onebitSuccess);
  EXPECT_EQ(config().codec.kind, CodecKind::kSparseEf);
  EXPECT_EQ(config().codec.block, 4096u);
  EXPECT_EQ(config().codec.sparse, (kernels::SparseCodec{.k = 64}));
  EXPECT_EQ(config().hops, 1);  // 2 ranks
  EXPECT_FALSE(config().has_server_residual);
  EXPECT_EQ(config().ef_decay, 1.0f);
  ASSERT_EQ(Create([](auto& c) {
              c.codec = onebitCodecRandk;
              c.mode = onebitModePlain;
              c.block = 640;
              c.k = 320;
              c.values = onebitValuesFloat32;
              c.hops = 2;
              c.seed = 5;
            }),
            onebitSuccess);
  EXPECT_EQ(config().codec.kind, CodecKind::kSparse);
  EXPECT_EQ(config().codec.sparse, (kernels::SparseCodec{.k = 320,
                                                         .values = kernels::SparseValues::kF32,
                                                         .is_random = true,
                                                         .is_unbiased = true}));
  EXPECT_EQ(config().hops, 2);
  EXPECT_EQ(config().seed, 5u);
  ASSERT_EQ(Create([](auto& c) {
              c.codec = onebitCodecRandk;
              c.hops = 2;
              c.efDecay = 0.5f;
            }),
            onebitSuccess);
  EXPECT_FALSE(config().codec.sparse.is_unbiased);
  EXPECT_TRUE(config().has_server_residual);
  EXPECT_EQ(config().ef_decay, 0.5f);
}

TEST_F(CompressorConfigTest, SparseCodecsTakeTwoHopsBeyondEightRanks) {
  for (const int ranks : {8, 9}) {
    CommGroup group(ranks);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.codec = onebitCodecTopk;
    const UniqueCompressor compressor = NewCompressor(group.comm(0), 100, onebitFloat32, config);
    EXPECT_EQ(compressor->planned.compressor.config().hops, ranks == 8 ? 1 : 2);
  }
}

TEST_F(CompressorConfigTest, SparseCodecsHaveLimitsOfTheirOwn) {
  const auto with = [](onebitCodec_t codec, const Change& change) {
    return [=](onebitCompressorConfig_t& c) {
      c.codec = codec;
      change(c);
    };
  };
  for (const int block : {64, 256, 300, 4160, 0, -320}) {
    ExpectRefused(with(onebitCodecTopk, [&](auto& c) { c.block = block; }), "block",
                  std::to_string(block));
  }
  for (const int k : {-1, 0, 2049, 70'000}) {
    ExpectRefused(with(onebitCodecTopk, [&](auto& c) { c.k = k; }), "k", std::to_string(k));
  }
  EXPECT_EQ(Create(with(onebitCodecTopk, [](auto& c) { c.k = 2048; })), onebitSuccess);
  ExpectRefused(with(onebitCodecRandk, [](auto& c) { c.k = 2049; }), "k", "2049");
  EXPECT_EQ(Create(with(onebitCodecRandk, [](auto& c) { c.k = 2048; })), onebitSuccess);
  ExpectRefused(with(onebitCodecTopk, [](auto& c) { c.values = 2; }), "values", "2");
  ExpectRefused(with(onebitCodecTopk, [](auto& c) { c.hops = 3; }), "hops", "3");
  ExpectRefused(with(onebitCodecTopk, [](auto& c) { c.efDecay = 1.5f; }), "efDecay", "1.5");
  ExpectRefused(
      with(onebitCodecTopk, [](auto& c) { c.efDecay = std::numeric_limits<float>::quiet_NaN(); }),
      "efDecay", "nan");
  ExpectRefused(with(onebitCodecTopk,
                     [](auto& c) {
                       c.mode = onebitModePlain;
                       c.efDecay = 0.5f;
                     }),
                "efDecay", "0.5");
  ExpectRefused(with(onebitCodecTopk, [](auto& c) { c.serverResidual = 1; }), "serverResidual",
                "1");
  ExpectRefused(with(onebitCodecTopk, [](auto& c) { c.scaleRule = onebitScaleL1; }), "scaleRule",
                "1");
  ExpectRefused(with(onebitCodecTopk, [](auto& c) { c.memory = onebitMemoryDevice; }), "memory",
                "1");
  for (const int collective :
       {onebitCollectiveAllToAll, onebitCollectiveAllToAllv, onebitCollectiveSendRecv}) {
    ExpectRefused(with(onebitCodecRandk,
                       [&](auto& c) {
                         c.collective = collective;
                         c.mode = onebitModePlain;
                       }),
                  "collective", std::to_string(collective));
  }
  for (const int collective : {onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    ExpectRefused(with(onebitCodecTopk, [&](auto& c) { c.collective = collective; }), "mode", "1");
    ExpectRefused(with(onebitCodecTopk,
                       [&](auto& c) {
                         c.collective = collective;
                         c.mode = onebitModePlain;
                         c.hops = 2;
                       }),
                  "hops", "2");
  }
  // Other codecs have none of these members.
  ExpectRefused(with(onebitCodecFp4, [](auto& c) { c.k = 64; }), "k", "64");
  ExpectRefused(with(onebitCodecSign, [](auto& c) { c.values = 0; }), "values", "0");
  ExpectRefused(with(onebitCodecInt8, [](auto& c) { c.hops = 1; }), "hops", "1");
  ExpectRefused(with(onebitCodecSign, [](auto& c) { c.efDecay = 0.9f; }), "efDecay", "0.9");
  EXPECT_EQ(Create([](auto& c) { c.efDecay = 1; }), onebitSuccess);
}

TEST_F(CompressorConfigTest, AllToAllvTakesRowsAsBlocks) {
  const auto rows = [](onebitCodec_t codec, int block) {
    return [=](onebitCompressorConfig_t& c) {
      c.collective = onebitCollectiveAllToAllv;
      c.mode = onebitModePlain;
      c.codec = codec;
      c.block = block;
    };
  };
  EXPECT_EQ(Create(rows(onebitCodecInt8, 1), 0), onebitSuccess);
  EXPECT_EQ(Create(rows(onebitCodecInt8, 7), 0), onebitSuccess);
  EXPECT_EQ(Create(rows(onebitCodecFp4, 10), 0), onebitSuccess);
  EXPECT_EQ(Create(rows(onebitCodecInt2, 12), 0), onebitSuccess);
  ExpectRefused(rows(onebitCodecFp4, 7), "block", "7");
  ExpectRefused(rows(onebitCodecInt2, 10), "block", "10");
  ExpectRefused(rows(onebitCodecUint8mm, 65537), "block", "65537");
}

TEST_F(CompressorConfigTest, ExtremesThatAreAllowed) {
  EXPECT_EQ(Create([](auto& c) { c.block = 64; }), onebitSuccess);
  EXPECT_EQ(Create([](auto& c) { c.block = 1 << 30; }), onebitSuccess);
  EXPECT_EQ(Create([](auto& c) { c.chunkAlignment = 65528; }), onebitSuccess);
  EXPECT_EQ(Create([](auto& c) { c.tensorId = std::numeric_limits<int64_t>::min(); }),
            onebitSuccess);
  EXPECT_EQ(Create([](auto&) {}, 0), onebitSuccess);
}

TEST_F(CompressorConfigTest, MembersOutOfRangeAreNamed) {
  for (const int value : {-1, 2, 100}) {
    const std::string text = std::to_string(value);
    ExpectRefused([&](auto& c) { c.mode = value; }, "mode", text);
    ExpectRefused([&](auto& c) { c.scaleRule = value; }, "scaleRule", text);
    ExpectRefused([&](auto& c) { c.transactional = value; }, "transactional", text);
    ExpectRefused([&](auto& c) { c.serverResidual = value; }, "serverResidual", text);
  }
  for (const int value : {-1, 7}) {
    ExpectRefused([&](auto& c) { c.collective = value; }, "collective", std::to_string(value));
  }
  for (const int value : {-64, 1, 8, 63, 65, (1 << 30) + 64}) {
    ExpectRefused([&](auto& c) { c.block = value; }, "block", std::to_string(value));
  }
  for (const int value : {0, -8, 1, 7, 9, 65536}) {
    ExpectRefused([&](auto& c) { c.chunkAlignment = value; }, "chunkAlignment",
                  std::to_string(value));
  }
  ExpectRefused([](auto& c) { c.residualType = onebitFloat16; }, "residualType", "6");
  ExpectRefused([](auto& c) { c.tensorId = int64_t{1} << 32; }, "tensorId", "4294967296");
}

TEST_F(CompressorConfigTest, MembersThatACollectiveHasNotAreRefused) {
  for (const onebitCollective_t collective :
       {onebitCollectiveReduceScatter, onebitCollectiveAllGather, onebitCollectiveAllToAll}) {
    ExpectRefused(
        [&](auto& c) {
          c.collective = collective;
          c.chunkAlignment = 8;
        },
        "chunkAlignment", "8");
    ExpectRefused(
        [&](auto& c) {
          c.collective = collective;
          c.serverResidual = 1;
        },
        "serverResidual", "1");
    EXPECT_EQ(Create([&](auto& c) { c.collective = collective; }), onebitSuccess);
    EXPECT_EQ(config().chunks, 2u);
    EXPECT_FALSE(compressor_->planned.compressor.has_server_residual());
  }
  const auto gather = [](auto& c) {
    c.collective = onebitCollectiveAllGather;
    c.residualType = onebitBfloat16;
  };
  ExpectRefused(gather, "residualType", "9");
  EXPECT_EQ(Create([&](auto& c) {
              gather(c);
              c.mode = onebitModePlain;
            }),
            onebitSuccess);
}

TEST_F(CompressorConfigTest, AllToAllvTakesSignsWithoutCountAndMask) {
  const auto pairs = [](auto& c) {
    c.collective = onebitCollectiveAllToAllv;
    c.mode = onebitModePlain;
  };
  EXPECT_EQ(Create(pairs, 0), onebitSuccess);
  const uint8_t mask = 1;
  EXPECT_EQ(onebitCompressorSetMask(compressor_.get(), &mask), onebitInvalidUsage);
  EXPECT_EQ(onebitCompressorSetMask(compressor_.get(), nullptr), onebitSuccess);
  ExpectRefused(
      [&](auto& c) {
        pairs(c);
        c.mode = onebitModeEf;
      },
      "mode", "1");
  EXPECT_EQ(Create(pairs, 1), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("count is 1"), std::string::npos);
  const auto masked = [&](auto& c) {
    pairs(c);
    c.mask = &mask;
  };
  EXPECT_EQ(Create(masked, 0), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("mask"), std::string::npos);
}

TEST_F(CompressorConfigTest, UnknownElementTypeIsRefused) {
  for (const int type : {0, 3, 5, 10}) {
    EXPECT_EQ(Create([](auto&) {}, 10, static_cast<onebitDataType_t>(type)), onebitInvalidArgument);
    EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("datatype"), std::string::npos);
  }
}

TEST_F(CompressorConfigTest, ElementTypesOfDenseCallsAreRefused) {
  for (const onebitDataType_t type : {onebitUint8, onebitInt32, onebitInt64, onebitFloat64}) {
    EXPECT_EQ(Create([](auto&) {}, 10, type), onebitInvalidArgument);
    EXPECT_EQ(onebitGetLastError(nullptr),
              "datatype " + std::to_string(type) +
                  " is for calls without a compressor only: use onebitFloat32, onebitFloat16 or "
                  "onebitBfloat16");
  }
}

// Sizes of residuals must not wrap around.
TEST_F(CompressorConfigTest, CountsThatNoMemoryHoldsAreRefused) {
  for (const size_t count : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4 + 2, SIZE_MAX / 8 + 1}) {
    EXPECT_EQ(Create([](auto&) {}, count), onebitInvalidArgument) << count;
    EXPECT_NE(std::string(onebitGetLastError(nullptr)).find(std::to_string(count)),
              std::string::npos);
  }
  // One part per rank: a size that is valid for one part may be too large for two.
  const auto scatter = [](auto& c) { c.collective = onebitCollectiveReduceScatter; };
  EXPECT_EQ(Create(scatter, SIZE_MAX / 8), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("each of 2 ranks"), std::string::npos);
#if !ONEBIT_HAS_SANITIZER  // sanitizers treat a request of this size as an error
  for (const size_t count : {SIZE_MAX / 8, SIZE_MAX / 64}) {
    EXPECT_EQ(Create([](auto&) {}, count), onebitOutOfMemory) << count;
  }
#endif
  EXPECT_EQ(Create([](auto&) {}, 10), onebitSuccess) << "the communicator is as it was";
}

TEST_F(CompressorConfigTest, NullHandlesAreRefused) {
  onebitCompressor_t handle = nullptr;
  EXPECT_EQ(onebitCompressorCreate(nullptr, group_.comm(0), 1, onebitFloat32, nullptr),
            onebitInvalidArgument);
  EXPECT_STREQ(onebitGetLastError(nullptr), "compressor is NULL");
  EXPECT_EQ(onebitCompressorCreate(&handle, nullptr, 1, onebitFloat32, nullptr),
            onebitInvalidArgument);
  EXPECT_STREQ(onebitGetLastError(nullptr), "comm is NULL");
  EXPECT_EQ(onebitCompressorReset(nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorSetMask(nullptr, nullptr), onebitInvalidArgument);
  onebitCompressorStats_t stats = {.size = sizeof(stats)};
  EXPECT_EQ(onebitCompressorGetStats(nullptr, &stats), onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorDestroy(nullptr), onebitSuccess);
  ASSERT_EQ(Create([](auto&) {}), onebitSuccess);
  EXPECT_EQ(onebitCompressorGetStats(compressor_.get(), nullptr), onebitInvalidArgument);
}

// If two tensors had the same id their calls could be swapped unnoticed.
TEST_F(CompressorConfigTest, TensorIdsInUseAreRefused) {
  const auto create = [&](int64_t id, onebitCompressor_t* compressor) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.tensorId = id;
    return onebitCompressorCreate(compressor, group_.comm(0), 10, onebitFloat32, &config);
  };
  onebitCompressor_t first = nullptr;
  onebitCompressor_t second = nullptr;
  ASSERT_EQ(create(-1, &first), onebitSuccess);  // 0
  EXPECT_EQ(create(0, &second), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("tensorId 0 is taken by another"),
            std::string::npos);
  ASSERT_EQ(onebitCompressorDestroy(first), onebitSuccess);
  EXPECT_EQ(create(0, &second), onebitSuccess) << "free again";
  EXPECT_EQ(onebitCompressorDestroy(second), onebitSuccess);
}

// The default id is the number of compressors created before; refused ones do not count.
TEST_F(CompressorConfigTest, DefaultTensorIdsCountCompressors) {
  for (uint32_t id = 0; id < 3; ++id) {
    EXPECT_EQ(Create([](auto& c) { c.mode = 7; }), onebitInvalidArgument);
    ASSERT_EQ(Create([](auto&) {}), onebitSuccess);
    EXPECT_EQ(config().tensor_id, id);
  }
}

}  // namespace
}  // namespace onebit::testing
