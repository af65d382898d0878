// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ONEBIT_NCCL_RULES: what its texts mean, and what is said of wrong ones.
#include "plugins/nccl_preload/call_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace onebit::preload {
namespace {

using ::testing::HasSubstr;

Rules Parsed(const std::string& text) {
  Rules rules;
  EXPECT_EQ(ParseRules(text, &rules).value_or("no error"), "no error") << text;
  return rules;
}

constexpr CommFacts kWorld{.name = "world", .ranks = 4};

TEST(CallRulesTest, NothingIsCompressedWithoutRules) {
  EXPECT_TRUE(Parsed("").is_off());
  EXPECT_TRUE(Parsed(" off ").is_off());
  EXPECT_EQ(Choose(Parsed("off"), kWorld, {.count = 1 << 20}).codec, kOff);
}

TEST(CallRulesTest, TheDefaultIsForLongSumsAndAveragesOfFloats) {
  const Rules rules = Parsed("default");
  EXPECT_TRUE(rules.is_default);
  const CallFacts call{.count = 1 << 18};
  EXPECT_EQ(Choose(rules, kWorld, call), (Compression{.codec = onebitCodecFp4}));
  CallFacts other = call;
  other.reduction = kAvg;
  EXPECT_EQ(Choose(rules, kWorld, other).codec, onebitCodecFp4);
  other.type = DataType::kBfloat16;
  EXPECT_EQ(Choose(rules, kWorld, other).codec, kOff);  // 512 KiB
  other.count *= 2;
  EXPECT_EQ(Choose(rules, kWorld, other).codec, onebitCodecFp4);
  other.type = DataType::kFloat16;
  EXPECT_EQ(Choose(rules, kWorld, other).codec, kOff);
  other = call;
  other.count -= 1;
  EXPECT_EQ(Choose(rules, kWorld, other).codec, kOff);
  other = call;
  other.reduction = 2;  // max
  EXPECT_EQ(Choose(rules, kWorld, other).codec, kOff);
  other = call;
  other.operation = Operation::kAllGather;
  EXPECT_EQ(Choose(rules, kWorld, other).codec, kOff);
  EXPECT_EQ(Choose(rules, {.name = "world", .ranks = 1}, call).codec, kOff);
}

TEST(CallRulesTest, TheFirstRuleThatMatchesDecides) {
  const Rules rules = Parsed(
      "comm=tp*:off; comm=dp, op=reducescatter, type=bfloat16, reduce=avg, ranks>=4:int8,plain,"
      "block=256; bytes>=1M,bytes<4M:sign,start=5 ; *:int2");
  EXPECT_FALSE(rules.is_default);
  const CallFacts reduce_scatter{.operation = Operation::kReduceScatter,
                                 .reduction = kAvg,
                                 .type = DataType::kBfloat16,
                                 .count = 100};
  EXPECT_EQ(Choose(rules, {.name = "dp", .ranks = 4}, reduce_scatter),
            (Compression{.codec = onebitCodecInt8, .has_feedback = false, .block = 256}));
  EXPECT_EQ(Choose(rules, {.name = "dp", .ranks = 3}, reduce_scatter).codec, onebitCodecInt2);
  EXPECT_EQ(Choose(rules, {.name = "dp2", .ranks = 4}, reduce_scatter).codec, onebitCodecInt2);
  EXPECT_EQ(Choose(rules, {.name = "tp_7", .ranks = 4}, reduce_scatter).codec, kOff);
  EXPECT_EQ(Choose(rules, {.name = "t", .ranks = 4}, reduce_scatter).codec, onebitCodecInt2);
  // The bytes are those of the whole tensor.
  const CallFacts parts{.operation = Operation::kReduceScatter, .count = 1 << 16};
  EXPECT_EQ(Choose(rules, kWorld, parts), (Compression{.codec = onebitCodecSign, .start = 5}));
  EXPECT_EQ(Choose(rules, kWorld, {.count = 1 << 16}).codec, onebitCodecInt2);
  EXPECT_EQ(Choose(rules, kWorld, {.count = 1 << 20}).codec, onebitCodecInt2);
}

TEST(CallRulesTest, OtherOperationsAreForRulesThatNameThem) {
  const Rules rules = Parsed(
      "op=alltoall:int8; op=sendrecv,bytes>=4K:fp4,block=64; "
      "op=allgather,type=bfloat16:int2,ef,start=3;"
      "*:sign");
  const Compression plain{.codec = onebitCodecInt8, .has_feedback = false, .start = 0};
  EXPECT_EQ(Choose(rules, kWorld, {.operation = Operation::kAllToAll, .count = 1}), plain);
  const Compression message{
      .codec = onebitCodecFp4, .has_feedback = false, .block = 64, .start = 0};
  for (const Operation operation : {Operation::kSend, Operation::kRecv}) {
    EXPECT_EQ(Choose(rules, kWorld, {.operation = operation, .count = 1024}), message);
    EXPECT_EQ(Choose(rules, kWorld, {.operation = operation, .count = 1023}).codec, kOff);
  }
  CallFacts gather{.operation = Operation::kAllGather, .type = DataType::kBfloat16, .count = 1};
  EXPECT_EQ(Choose(rules, kWorld, gather), (Compression{.codec = onebitCodecInt2, .start = 3}));
  gather.type = DataType::kFloat32;
  EXPECT_EQ(Choose(rules, kWorld, gather).codec, kOff);
  EXPECT_EQ(Choose(rules, kWorld, {.operation = Operation::kBroadcast, .count = 1}).codec, kOff);
  EXPECT_TRUE(rules.MaySelect(kWorld, Operation::kRecv));
  EXPECT_TRUE(rules.MaySelect(kWorld, Operation::kReduceScatter));
  EXPECT_FALSE(rules.MaySelect(kWorld, Operation::kGather));
  // Without an operation `off` is for all of them.
  const CallFacts exchange{.operation = Operation::kAllToAll, .count = 1};
  EXPECT_EQ(Choose(Parsed("comm=w*:off; op=alltoall:int8"), kWorld, exchange).codec, kOff);
  EXPECT_EQ(Choose(Parsed("*:off"), kWorld, exchange, plain).codec, kOff);
  EXPECT_FALSE(Parsed("comm=pp:fp4").MaySelect(kWorld, Operation::kAllReduce));
  EXPECT_FALSE(Parsed("*:fp4; op=alltoall:off").MaySelect(kWorld, Operation::kAllToAll));
}

TEST(CallRulesTest, AProgramMayAskForAnotherCodec) {
  const Rules rules = Parsed("type=bfloat16:off; bytes>=1M:fp4");
  const Compression int8{.codec = onebitCodecInt8};
  const CallFacts large{.count = 1 << 20};
  EXPECT_EQ(Choose(rules, kWorld, large, int8), int8);
  EXPECT_EQ(Choose(rules, kWorld, {.count = 1}, int8), int8);  // no rule matches
  EXPECT_EQ(Choose(rules, kWorld, {.type = DataType::kBfloat16, .count = 1 << 20}, int8).codec,
            kOff);
  EXPECT_EQ(Choose(rules, kWorld, {.type = DataType::kInt32, .count = 1 << 20}, int8).codec, kOff);
  EXPECT_EQ(Choose(Parsed("off"), kWorld, large, int8).codec, kOff);
}

TEST(CallRulesTest, SignsHaveLongBlocks) {
  EXPECT_EQ(Choose(Parsed("*:sign,block=131072;"), kWorld, {.count = 1}).block, 131072u);
}

TEST(CallRulesTest, ErrorsNameTheRuleAndWhatThereIs) {
  const auto error = [](const std::string& text) {
    Rules rules;
    const std::string found = ParseRules(text, &rules).value_or("no error");
    EXPECT_TRUE(rules.is_off());
    return found;
  };
  EXPECT_EQ(error("*:fp4; op=allreduce"),
            "rule 2, \"op=allreduce\": it has no \":\" followed by a codec");
  EXPECT_THAT(error("comm=tp:off; default"), HasSubstr("default and off cannot be combined"));
  EXPECT_THAT(error(":fp4"), HasSubstr("it has no conditions; write * for all reductions"));
  EXPECT_THAT(error("*:"),
              HasSubstr("unknown codec \"\"; the codecs are off, fp4, int8, int2, sign"));
  EXPECT_THAT(error("*:fp8"), HasSubstr("unknown codec \"fp8\""));
  EXPECT_THAT(error("*:fp4,residual"),
              HasSubstr("unknown option \"residual\"; the options are ef, plain"));
  EXPECT_THAT(error("*:fp4,block=0"), HasSubstr("\"0\" is not a number of elements"));
  EXPECT_THAT(error("*:fp4,block=100"),
              HasSubstr("block=100 is not a multiple of 32 up to 65536, as this codec needs"));
  EXPECT_THAT(error("*:int8,block=131072"), HasSubstr("not a multiple of 32 up to 65536"));
  EXPECT_EQ(Choose(Parsed("*:bf16,plain,start=0"), kWorld, {.count = 1}),
            (Compression{.codec = onebitCodecBf16, .has_feedback = false, .start = 0}));
  EXPECT_TRUE(Choose(Parsed("*:fp4,levels=1"), kWorld, {.count = 1}).has_one_level);
  EXPECT_FALSE(Choose(Parsed("*:fp4,levels=0"), kWorld, {.count = 1}).has_one_level);
  EXPECT_THAT(error("*:fp4,levels=2"), HasSubstr("\"2\" is not a number of levels; 0 lets onebit"));
  EXPECT_THAT(error("*:bf16,block=64"), HasSubstr("block=64 has no meaning for bf16"));
  EXPECT_THAT(error("*:bf17"), HasSubstr("the codecs are off, fp4, int8, int2, sign, bf16"));
  EXPECT_THAT(error("*:sign,block=96"), HasSubstr("not a multiple of 64 up to 1073741824"));
  EXPECT_THAT(error("*:fp4,start=-1"), HasSubstr("\"-1\" is not a number of calls"));
  EXPECT_THAT(error("op=broadcast:fp4"), HasSubstr("operation \"broadcast\" cannot be compressed"));
  EXPECT_THAT(error("op=sendrecv:fp4,ef"), HasSubstr("op=sendrecv takes neither ef nor start="));
  EXPECT_THAT(error("op=sendrecv:fp4,start=1"), HasSubstr("neither ef nor start="));
  EXPECT_THAT(error("reduce=sum,op=alltoall:fp4"), HasSubstr("reduce= is for operations that"));
  EXPECT_THAT(error("reduce=max:fp4"), HasSubstr("reduction \"max\" cannot be compressed"));
  EXPECT_THAT(error("type=int8:fp4"), HasSubstr("type \"int8\" cannot be compressed"));
  EXPECT_THAT(error("bytes>=1T:fp4"), HasSubstr("\"1T\" is not a size in bytes"));
  EXPECT_THAT(error("bytes<99999999999G:fp4"), HasSubstr("is not a size in bytes"));
  EXPECT_THAT(error("ranks>=0:fp4"), HasSubstr("\"0\" is not a number of ranks"));
  EXPECT_THAT(error("comm=:fp4"), HasSubstr("needs the name of a communicator"));
  EXPECT_THAT(error("tensor=3:fp4"),
              HasSubstr("unknown condition \"tensor=3\"; the conditions are comm=, op="));
}

}  // namespace
}  // namespace onebit::preload
