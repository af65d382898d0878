// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The flags of compression: a codec brings its usual mode and block, and contradictions are errors.
#include "perf/common/codec_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using testing::HasSubstr;

using Arguments = std::vector<const char*>;

CodecChoice Parse(Arguments arguments, onebitCollective_t collective = onebitCollectiveAllReduce) {
  arguments.insert(arguments.begin(), "tool");
  CLI::App app;
  CodecChoice choice;
  AddCodecFlags(app, &choice);
  ParseCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  CompleteCodec(app, collective, &choice);
  return choice;
}

std::string ErrorOf(const Arguments& arguments,
                    onebitCollective_t collective = onebitCollectiveAllReduce) {
  try {
    Parse(arguments, collective);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(CodecChoiceTest, WithoutFlagsCallsAreDense) {
  const CodecChoice choice = Parse({});
  EXPECT_FALSE(choice.is_compressed());
  EXPECT_EQ(choice.mode_name(), "dense");
  EXPECT_EQ(choice.block, 4096);
}

TEST(CodecChoiceTest, ACodecBringsItsModeAndBlock) {
  const struct {
    const char* name;
    onebitCodec_t codec;
    Mode mode;
    int32_t block;
  } cases[] = {{"sign", onebitCodecSign, Mode::kEf, 4096},
               {"fp4", onebitCodecFp4, Mode::kEf, 128},
               {"int8", onebitCodecInt8, Mode::kEf, 256},
               {"uint8mm", onebitCodecUint8mm, Mode::kEf, 256},
               {"int2", onebitCodecInt2, Mode::kEf, 4096},
               {"int8s", onebitCodecInt8Stochastic, Mode::kPlain, 256},
               {"topk", onebitCodecTopk, Mode::kEf, 4096},
               {"randk", onebitCodecRandk, Mode::kEf, 4096},
               {"bf16", onebitCodecBf16, Mode::kEf, 1}};
  for (const auto& c : cases) {
    const CodecChoice choice = Parse({"--codec", c.name});
    EXPECT_EQ(choice.codec, c.codec);
    EXPECT_EQ(choice.codec_name(), c.name);
    EXPECT_EQ(choice.mode, c.mode) << c.name;
    EXPECT_EQ(choice.block, c.block) << c.name;
    const bool is_sparse = c.codec == onebitCodecTopk || c.codec == onebitCodecRandk;
    EXPECT_EQ(choice.is_sparse(), is_sparse);
    EXPECT_EQ(choice.has_codes(), c.codec != onebitCodecSign && !is_sparse);
    EXPECT_EQ(Parse({"--codec", c.name, "--mode", "plain"}).mode, Mode::kPlain);
  }
  EXPECT_EQ(Parse({"--codec", "fp4"}, onebitCollectiveAllToAllv).mode, Mode::kPlain);
}

TEST(CodecChoiceTest, SignIsAModeOfItsOwnName) {
  const CodecChoice signs = Parse({"--mode", "sign"});
  EXPECT_EQ(signs.mode, Mode::kPlain);
  EXPECT_EQ(signs.codec, onebitCodecSign);
  EXPECT_EQ(signs.mode_name(), "sign");
  EXPECT_EQ(Parse({"--mode", "plain"}).mode_name(), "sign");
  EXPECT_EQ(Parse({"--mode", "plain", "--codec", "int8"}).mode_name(), "plain");
}

TEST(CodecChoiceTest, ContradictionsSayWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--mode", "dense"}), HasSubstr("leave out --codec fp4"));
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--mode", "sign"}), HasSubstr("use --mode plain"));
  EXPECT_THAT(ErrorOf({"--codec", "int8s", "--mode", "ef"}), HasSubstr("use --mode plain"));
  EXPECT_THAT(ErrorOf({"--codec", "int8", "--scale", "l1"}), HasSubstr("--scale is for --codec"));
  EXPECT_THAT(ErrorOf({"--mode", "ef"}, onebitCollectiveAllToAllv),
              HasSubstr("no error feedback: use --mode plain"));
  EXPECT_THAT(ErrorOf({"--codec", "fp5"}),
              HasSubstr("sign|fp4|int8|uint8mm|int2|int8s|topk|randk|bf16"));
  EXPECT_THAT(ErrorOf({"--codec", "bf16", "--block", "64"}),
              HasSubstr("--block: '64' is for codecs with scales"));
  EXPECT_THAT(ErrorOf({"--codec", "bf16", "--block", "64"}, onebitCollectiveAllToAllv),
              HasSubstr("for codecs with scales"));
}

TEST(CodecChoiceTest, SparseCodecsTakeKAndHops) {
  const CodecChoice topk = Parse({"--codec", "topk"});
  EXPECT_EQ(topk.k, 64);
  EXPECT_EQ(topk.HopsOf(8), 1);
  EXPECT_EQ(topk.HopsOf(9), 2);
  EXPECT_EQ(Parse({"--codec", "topk", "--block", "640"}).k, 10);
  const CodecChoice randk =
      Parse({"--codec", "randk", "--k", "2048", "--values", "fp32", "--hops", "2"});
  EXPECT_EQ(randk.k, 2048);
  EXPECT_EQ(randk.values, onebitValuesFloat32);
  EXPECT_EQ(randk.HopsOf(2), 2);
  EXPECT_TRUE(randk.is_random());
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  randk.Configure(&config);
  EXPECT_EQ(config.codec, onebitCodecRandk);
  EXPECT_EQ(config.k, 2048);
  EXPECT_EQ(config.values, onebitValuesFloat32);
  EXPECT_EQ(config.hops, 2);
  EXPECT_EQ(Parse({"--codec", "topk"}, onebitCollectiveAllGather).mode, Mode::kPlain);
  EXPECT_THAT(ErrorOf({"--codec", "topk", "--block", "320", "--k", "161"}),
              HasSubstr("more than 160, half"));
  EXPECT_THAT(ErrorOf({"--codec", "topk", "--block", "256"}), HasSubstr("from 320 to 4096"));
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--k", "3"}), HasSubstr("--k is for --codec topk"));
  EXPECT_THAT(ErrorOf({"--hops", "1"}), HasSubstr("--hops is for --codec topk"));
  EXPECT_THAT(ErrorOf({"--codec", "topk", "--scale", "l1"}), HasSubstr("--scale is for --codec"));
  EXPECT_THAT(ErrorOf({"--codec", "topk"}, onebitCollectiveAllToAll), HasSubstr("an allreduce"));
  EXPECT_THAT(ErrorOf({"--codec", "topk", "--mode", "ef"}, onebitCollectiveReduceScatter),
              HasSubstr("--mode plain"));
}

TEST(CodecChoiceTest, LevelsAreForCompressedCallsThatCanHaveTwo) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  Parse({"--codec", "fp4", "--levels", "2"}).Configure(&config);
  EXPECT_EQ(config.levels, 2);
  EXPECT_EQ(Parse({"--codec", "fp4"}).levels, 0);
  EXPECT_EQ(Parse({"--codec", "topk", "--levels", "2"}).HopsOf(2), 2);
  EXPECT_THAT(ErrorOf({"--levels", "2"}), HasSubstr("ONEBIT_TWO_LEVEL_BYTES"));
  for (const auto parts : {onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    EXPECT_EQ(Parse({"--codec", "fp4", "--levels", "2"}, parts).levels, 2);
    EXPECT_EQ(Parse({"--codec", "fp4"}, parts).levels, 0);
    EXPECT_EQ(Parse({"--codec", "topk", "--levels", "2"}, parts).hops, 0);
  }
  EXPECT_EQ(Parse({"--codec", "fp4"}, onebitCollectiveAllToAll).levels, 1);
  EXPECT_EQ(Parse({"--mode", "ef", "--block", "tensor"}).levels, 1);
  EXPECT_EQ(Parse({"--codec", "topk", "--hops", "1"}).levels, 1);
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--levels", "2"}, onebitCollectiveAllToAll),
              HasSubstr("--levels is for an allreduce, reduce-scatter or all-gather"));
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--levels", "3"}), HasSubstr("--levels"));
}

TEST(CodecChoiceTest, BlocksFitTheCodec) {
  EXPECT_EQ(Parse({"--mode", "ef", "--block", "tensor"}).block, ONEBIT_BLOCK_TENSOR);
  EXPECT_EQ(Parse({"--codec", "fp4", "--block", "64K"}).block, 65536);
  EXPECT_THAT(ErrorOf({"--mode", "ef", "--block", "96"}), HasSubstr("multiple of 64"));
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--block", "tensor"}), HasSubstr("for --codec sign"));
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--block", "100"}), HasSubstr("multiple of 32"));
  EXPECT_THAT(ErrorOf({"--codec", "fp4", "--block", "128K"}), HasSubstr("up to 65536"));
  EXPECT_NE(ErrorOf({"--block", "0"}), "");
  // A row of any length, if its codes fill whole bytes.
  const auto of_rows = onebitCollectiveAllToAllv;
  EXPECT_EQ(Parse({"--codec", "int8", "--block", "1001"}, of_rows).block, 1001);
  EXPECT_EQ(Parse({"--codec", "int2", "--block", "1004"}, of_rows).block, 1004);
  EXPECT_THAT(ErrorOf({"--codec", "int2", "--block", "1002"}, of_rows), HasSubstr("whole bytes"));
}

TEST(CodecChoiceTest, PacketsAreThoseOfTheFormat) {
  const PacketRule signs = Parse({"--mode", "sign"}).packet();
  EXPECT_EQ(signs.Bytes(5000), 2 * 4u + 625);
  EXPECT_TRUE(signs.has_verdicts);
  const auto bytes = [](const char* codec) {
    return Parse({"--codec", codec}).packet().Bytes(5000);
  };
  EXPECT_EQ(bytes("fp4"), 80u + 2500);
  EXPECT_EQ(bytes("int8"), 48u + 5000);
  EXPECT_EQ(bytes("uint8mm"), 80u + 5000);
  EXPECT_EQ(bytes("int2"), 16u + 1250);
  EXPECT_EQ(bytes("int8s"), 48u + 5000);
  // 64 and 15 of 904 elements, and 79 * 12 bits of indices.
  EXPECT_EQ(bytes("topk"), 16u + 128 + 20);
  EXPECT_EQ(bytes("randk"), 16u + 20);
  EXPECT_EQ(Parse({"--codec", "topk", "--values", "fp32"}).packet().Bytes(5000), 128u + 316);
  EXPECT_TRUE(Parse({"--codec", "fp4"}).packet().has_verdicts);
  EXPECT_FALSE(Parse({"--codec", "fp4", "--mode", "plain"}).packet().has_verdicts);
}

TEST(CodecChoiceTest, CompressorsAreConfigured) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  Parse({"--codec", "uint8mm"}).Configure(&config);
  EXPECT_EQ(config.codec, onebitCodecUint8mm);
  EXPECT_EQ(config.mode, onebitModeEf);
  EXPECT_EQ(config.block, 256);
  EXPECT_EQ(config.scaleRule, ONEBIT_UNDEF_INT);
  Parse({"--mode", "sign", "--scale", "l1"}).Configure(&config);
  EXPECT_EQ(config.codec, onebitCodecSign);
  EXPECT_EQ(config.mode, onebitModePlain);
  EXPECT_EQ(config.scaleRule, onebitScaleL1);
}

}  // namespace
}  // namespace onebit::perf
