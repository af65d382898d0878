// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Frames of onebit_run and its agents, in any pieces, behind anything that a login shell prints.
#include "perf/hosts/agent_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

std::vector<std::string> Read(FrameReader* reader) {
  std::vector<std::string> payloads;
  for (Frame frame; reader->Next(&frame);) payloads.push_back(frame.payload);
  return payloads;
}

TEST(FrameReaderTest, TakesFramesInAnyPieces) {
  std::string bytes;
  AppendFrame(FrameKind::kOutput, std::string("\0\xff\n", 3), &bytes);
  AppendFrame(FrameKind::kAlive, "", &bytes);
  AppendFrame(FrameKind::kOutput, std::string(70'000, 'x'), &bytes);
  for (const size_t piece : {size_t{1}, size_t{3}, bytes.size()}) {
    FrameReader reader(false);
    std::vector<std::string> payloads;
    for (size_t begin = 0; begin < bytes.size(); begin += piece) {
      reader.Feed(std::string_view(bytes).substr(begin, piece));
      for (std::string& payload : Read(&reader)) payloads.push_back(std::move(payload));
    }
    EXPECT_THAT(payloads,
                testing::ElementsAre(std::string("\0\xff\n", 3), "", std::string(70'000, 'x')))
        << piece;
  }
}

TEST(FrameReaderTest, SkipsWhatComesBeforeTheGreeting) {
  FrameReader reader(true);
  std::string bytes = "Welcome\nonebit_run --agent is";
  bytes += kAgentGreeting;
  AppendFrame(FrameKind::kOutput, "first", &bytes);
  for (const char c : bytes.substr(0, bytes.size() - 1)) {
    reader.Feed({&c, 1});
    EXPECT_THAT(Read(&reader), testing::IsEmpty());
  }
  reader.Feed(bytes.substr(bytes.size() - 1));
  EXPECT_THAT(Read(&reader), testing::ElementsAre("first"));
}

TEST(FrameReaderTest, RefusesALengthThatNobodySends) {
  FrameReader reader(false);
  reader.Feed(std::string("O\xff\xff\xff\x7f", 5));
  Frame frame;
  EXPECT_THROW(reader.Next(&frame), ToolError);
}

TEST(AgentProtocolTest, AJobArrivesAsItIs) {
  AgentJob job;
  job.first_rank = 4;
  job.local_ranks = 3;
  job.ranks = 9;
  job.loss_timeout_ms = 15'000;
  job.is_preloaded = true;
  job.folder = "/a folder";
  job.rendezvous = "[fd00::1]:4000";
  job.secret = "secret";
  job.master_address = "fd00::1";
  job.master_port = 5000;
  job.arguments = {"program", "", "\xff 'quoted' \n"};
  job.variables = {"EMPTY=", "A=b=c"};
  const AgentJob copy = DecodeJob(Encode(job));
  EXPECT_EQ(Encode(copy), Encode(job));
  EXPECT_EQ(copy.arguments, job.arguments);
  EXPECT_EQ(copy.variables, job.variables);
  EXPECT_TRUE(copy.is_preloaded);
  EXPECT_FALSE(copy.is_output_tagged);
}

TEST(AgentProtocolTest, TruncatedPayloadsAreErrors) {
  AgentJob job;
  job.arguments = {"program"};
  const std::string payload = Encode(job);
  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_THROW(DecodeJob(payload.substr(0, size)), ToolError) << size;
  }
  EXPECT_THROW(DecodeNumber("4x"), ToolError);
}

TEST(AgentProtocolTest, AnotherVersionMaySayAnythingBehindItsNumber) {
  EXPECT_EQ(DecodeHello(EncodeTexts({"99.0.0"})).version, "99.0.0");
  EXPECT_THROW(DecodeHello(EncodeTexts({OwnVersion()})), ToolError);
  AgentHello hello;
  hello.version = OwnVersion();
  hello.server_address = "10.0.0.1";
  hello.rendezvous_port = 4000;
  EXPECT_EQ(Encode(DecodeHello(Encode(hello))), Encode(hello));
}

}  // namespace
}  // namespace onebit::perf
