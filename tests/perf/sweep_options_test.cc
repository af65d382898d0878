// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The command line: nccl-tests' flags and defaults, our own flags, and helpful errors.
#include "perf/common/sweep_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

Options Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tool");
  const auto count = static_cast<int>(arguments.size());
  return ParseOptions(count, arguments.data(), "tool", "Measure.").value();
}

std::string ErrorOf(const std::vector<const char*>& arguments) {
  try {
    Parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(OptionsTest, DefaultsAreThoseOfNcclTests) {
  const Options options = Parse({});
  EXPECT_EQ(options.sweep.min_bytes, size_t{32} << 20);
  EXPECT_EQ(options.sweep.max_bytes, size_t{32} << 20);
  EXPECT_EQ(options.sweep.step_bytes, size_t{1} << 20);
  EXPECT_LE(options.sweep.step_factor, 1u);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup_iterations, 1);
  EXPECT_EQ(options.checks, 1);
  EXPECT_EQ(options.ranks.threads, 1);
  EXPECT_THAT(options.types, testing::ElementsAre(onebitFloat32));
  EXPECT_THAT(options.ops, testing::ElementsAre(onebitSum));
  EXPECT_FALSE(options.is_compressed());
}

TEST(OptionsTest, FlagsAreThoseOfNcclTests) {
  const Options options =
      Parse({"-b", "1K", "-e", "2M", "-i",  "512", "-f",  "2",  "-n", "5",  "-w",
             "0",  "-c", "0",  "-d", "all", "-o",  "avg", "-t", "7",  "-J", "x.json"});
  EXPECT_EQ(options.sweep.min_bytes, 1024u);
  EXPECT_EQ(options.sweep.max_bytes, size_t{2} << 20);
  EXPECT_EQ(options.sweep.step_bytes, 512u);
  EXPECT_EQ(options.sweep.step_factor, 2u);
  EXPECT_EQ(options.iterations, 5);
  EXPECT_EQ(options.warmup_iterations, 0);
  EXPECT_EQ(options.checks, 0);
  EXPECT_EQ(options.ranks.threads, 7);
  EXPECT_THAT(options.types,
              testing::ElementsAre(onebitUint8, onebitInt32, onebitInt64, onebitFloat16,
                                   onebitFloat32, onebitFloat64, onebitBfloat16));
  EXPECT_THAT(options.ops, testing::ElementsAre(onebitAvg));
  EXPECT_EQ(options.json_path, "x.json");
}

TEST(OptionsTest, ScriptsOfNcclTestsRunAsTheyAre) {
  const Options options =
      Parse({"-g", "1", "-m", "1", "-z", "1", "-T", "60", "-N", "3", "-a", "3"});
  EXPECT_TRUE(options.is_blocking);
  EXPECT_EQ(options.timeout_seconds, 60);
  EXPECT_EQ(options.cycles, 3);
  EXPECT_EQ(options.rank_time, RankTime::kMost);
  EXPECT_EQ(Parse({}).rank_time, RankTime::kMean);
  EXPECT_FALSE(Parse({"-z", "0", "--device", "cuda"}).is_blocking);
}

TEST(OptionsTest, OtherFlagsOfNcclTestsTakeTheirDefaultAndSayWhatDoesTheRest) {
  EXPECT_NO_THROW(
      Parse({"-p", "0",  "-y", "0",  "-G", "0",  "-C", "0",  "-S", "0",  "-R", "0",  "-x",
             "0",  "-D", "0",  "-V", "16", "-M", "0",  "-u", "0",  "-I", "0",  "-K", "0"}));
  EXPECT_NO_THROW(Parse({"--parallel_init", "1"}));
  const std::vector<std::pair<const char*, const char*>> answers = {
      {"-m", "group_perf"},         {"-G", "docs/gpu.md"},
      {"-C", "perf stat"},          {"-S", "-J"},
      {"-M", "CompressorGetStats"}, {"-u", "-b 1000004 -e 1000004"},
      {"-I", "ONEBIT_TRACE"},       {"-K", "raise -w"},
      {"-R", "leave it out"},       {"-z", "between two barriers"}};
  for (const auto& [flag, answer] : answers) {
    EXPECT_THAT(ErrorOf({flag, "3"}),
                testing::AllOf(testing::HasSubstr(flag), testing::HasSubstr(answer)));
  }
}

TEST(OptionsTest, OnlySomeToolsHaveARootOrASeed) {
  const std::vector<const char*> arguments = {"tool", "-r", "2"};
  EXPECT_EQ(ParseOptions(3, arguments.data(), "tool", "Measure.", std::nullopt,
                         {.collective = std::nullopt, .has_root = true})
                ->root,
            2);
  EXPECT_NE(ErrorOf({"-r", "0"}), "");
  EXPECT_NE(ErrorOf({"--seed", "1"}), "");
}

TEST(RankTimeTest, IsThatOfTheRanksAskedFor) {
  const double seconds[] = {3, 1, 5};
  EXPECT_EQ(SecondsOver(seconds, RankTime::kRank0), 3);
  EXPECT_EQ(SecondsOver(seconds, RankTime::kMean), 3);
  EXPECT_EQ(SecondsOver(seconds, RankTime::kLeast), 1);
  EXPECT_EQ(SecondsOver(seconds, RankTime::kMost), 5);
}

TEST(OptionsTest, ASweepCanBeKeptShort) {
  const Options usual = Parse({});
  EXPECT_FALSE(usual.row_seconds.has_value());
  EXPECT_TRUE(usual.is_in_place_timed);
  EXPECT_TRUE(usual.is_dense_timed);
  const Options quick = Parse({"--row-seconds", "0.5", "--no-in-place", "--no-dense"});
  EXPECT_EQ(quick.row_seconds, 0.5);
  EXPECT_FALSE(quick.is_in_place_timed);
  EXPECT_FALSE(quick.is_dense_timed);
  EXPECT_NE(ErrorOf({"--row-seconds", "-1"}), "");
  EXPECT_NE(ErrorOf({"--row-seconds", "nan"}), "");
}

TEST(OptionsTest, BuffersHoldTheLargestMessage) {
  EXPECT_EQ(Parse({"-b", "1K", "-e", "2M"}).AllocatedBytes(), size_t{2} << 20);
  EXPECT_EQ(Parse({"-b", "1K", "-e", "2M", "--buffer-bytes", "64M"}).AllocatedBytes(),
            size_t{64} << 20);
  EXPECT_THAT(ErrorOf({"-b", "1K", "-e", "2M", "--buffer-bytes", "1M"}),
              testing::HasSubstr("--buffer-bytes 1048576 is too small for -e 2097152"));
}

TEST(OptionsTest, CompressionHasItsOwn) {
  const Options options =
      Parse({"--mode", "sign", "--scale", "l1", "--block", "tensor", "--transport", "local"});
  EXPECT_EQ(options.mode, Mode::kPlain);
  EXPECT_EQ(options.scale_rule, onebitScaleL1);
  EXPECT_EQ(options.block, ONEBIT_BLOCK_TENSOR);
  EXPECT_EQ(Parse({"--block", "1K"}).block, 1024);
}

TEST(OptionsTest, AllIsWhatTheModeHas) {
  EXPECT_THAT(Parse({"-o", "all"}).ops,
              testing::ElementsAre(onebitSum, onebitMax, onebitMin, onebitAvg));
  EXPECT_THAT(Parse({"-d", "double", "-o", "min"}).types, testing::ElementsAre(onebitFloat64));
  const Options compressed = Parse({"--mode", "ef", "-d", "all", "-o", "all"});
  EXPECT_THAT(compressed.types, testing::ElementsAre(onebitFloat16, onebitFloat32, onebitBfloat16));
  EXPECT_THAT(compressed.ops, testing::ElementsAre(onebitSum, onebitAvg));
  EXPECT_EQ(ErrorOf({"--mode", "ef", "-d", "int64"}),
            "-d int64 needs --mode dense: the other modes take half|float|bfloat16");
  EXPECT_EQ(ErrorOf({"--mode", "sign", "-o", "max"}),
            "-o max needs --mode dense: the other modes take sum|avg");
}

TEST(OptionsTest, BuffersAreHostMemoryOrThatOfADevice) {
  EXPECT_FALSE(Parse({}).device.is_cuda);
  EXPECT_FALSE(Parse({"--device", "cpu"}).device.is_cuda);
  const Options any = Parse({"--device", "cuda", "-t", "2", "--transport", "nccl"});
  EXPECT_TRUE(any.device.is_cuda);
  EXPECT_FALSE(any.device.number.has_value());
  EXPECT_EQ(any.transport, "nccl");
  EXPECT_EQ(Parse({"--device", "cuda:3"}).device.number, 3);
  for (const char* wrong : {"gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda1"}) {
    EXPECT_THAT(ErrorOf({"--device", wrong}), testing::HasSubstr("is not cpu, cuda or cuda:N"));
  }
  EXPECT_THAT(ErrorOf({"--transport", "nccl"}), testing::HasSubstr("add --device cuda"));
}

TEST(OptionsTest, ErrorsSayWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf({"-b", "4X"}), testing::HasSubstr("'4X' is not a size"));
  EXPECT_THAT(ErrorOf({"-d", "int8"}),
              testing::HasSubstr("uint8|int32|int64|half|float|double|bfloat16"));
  EXPECT_THAT(ErrorOf({"-o", "prod"}), testing::HasSubstr("sum|max|min|avg"));
  EXPECT_THAT(ErrorOf({"--mode", "2bit"}), testing::HasSubstr("dense|plain|ef|sign"));
  EXPECT_THAT(ErrorOf({"--transport", "pigeon"}), testing::HasSubstr("start some with --procs N"));
  EXPECT_THAT(ErrorOf({"--block", "100"}), testing::HasSubstr("multiple of 64"));
  EXPECT_THAT(ErrorOf({"-b", "2K", "-e", "1K"}), testing::HasSubstr("larger than"));
  EXPECT_THAT(ErrorOf({"-b", "0", "-f", "2"}), testing::HasSubstr("cannot grow"));
  EXPECT_THAT(ErrorOf({"-i", "0"}), testing::HasSubstr("never reaches"));
  EXPECT_NE(ErrorOf({"-t", "0"}), "");
  EXPECT_NE(ErrorOf({"-n", "0"}), "");
  EXPECT_THAT(ErrorOf({"-g", "2"}), testing::HasSubstr("give -t N or --procs N"));
  EXPECT_THAT(ErrorOf({"-m", "8"}), testing::HasSubstr("group_perf"));
  EXPECT_THAT(ErrorOf({"-z", "0"}), testing::HasSubstr("calls on host memory block"));
  EXPECT_THAT(ErrorOf({"-z", "2"}), testing::HasSubstr("0|1"));
  EXPECT_NE(ErrorOf({"-a", "4"}), "");
  EXPECT_NE(ErrorOf({"-N", "0"}), "");
  EXPECT_NE(ErrorOf({"-T", "-1"}), "");
}

}  // namespace
}  // namespace onebit::perf
