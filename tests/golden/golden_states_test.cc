// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Saved states of earlier versions load: those of the golden file, which make_golden_states.py
// wrote from the text of STATE.md alone. What is saved again right after has the same bytes, so
// nothing of a state was lost.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/golden/golden_file.h"
#include "tests/optim/optimizer_job.h"
#include "tests/state/state_job.h"
#include "tests/sync/sync_job.h"

namespace onebit::testing {
namespace {

using nlohmann::json;

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const json& golden : LoadGolden("states")) names.push_back(golden["name"]);
  return names;
}

json CaseNamed(const std::string& name) {
  for (const json& golden : LoadGolden("states")) {
    if (golden["name"] == name) return golden;
  }
  return {};
}

onebitStateKind_t KindOf(const json& golden) {
  return golden["kind"] == "all" ? onebitStateGlobal : onebitStateRank;
}

// The state of each rank, or for each the one of all ranks.
std::vector<Blob> StatesOf(const json& golden) {
  const json& states = golden["states"];
  std::vector<Blob> blobs;
  for (size_t rank = 0; rank < golden["ranks"]; ++rank) {
    blobs.push_back(FromHex(states[states.size() == 1 ? 0 : rank]));
  }
  return blobs;
}

void LoadCompressors(const json& golden) {
  const std::vector<Blob> states = StatesOf(golden);
  StateSubject subject{.name = "golden"};
  subject.count = golden["count"];
  subject.block = golden["block"] == 0 ? ONEBIT_BLOCK_TENSOR : golden["block"].get<int>();
  subject.op = golden["op"] == "sum" ? onebitSum : onebitAvg;
  subject.mode = golden["codec"] == "sign_plain" ? onebitModePlain : onebitModeEf;
  subject.codec = golden["codec"] == "fp4" ? onebitCodecFp4 : onebitCodecSign;
  subject.residual_type = golden["residual"] == "bf16" ? onebitBfloat16 : onebitFloat32;
  subject.has_server_residual = golden["server"];
  subject.is_one_exchange = golden["one_exchange"];
  StateJob job(golden["ranks"], subject, 3);
  job.Import(states);
  EXPECT_EQ(job.Export(KindOf(golden)), states);
  job.CallsSucceed(1);
}

void LoadSyncs(const json& golden) {
  const std::vector<Blob> states = StatesOf(golden);
  SyncJob job(golden["ranks"], Every(golden["interval"]), 5);
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const Outcome outcome = job.Import(rank, states[static_cast<size_t>(rank)]);
    ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  EXPECT_EQ(job.Export(KindOf(golden)), states);
  EXPECT_EQ(job.StepSucceeds().did_sync, 1);
}

void LoadOptimizers(const json& golden) {
  const std::vector<Blob> states = StatesOf(golden);
  const std::map<std::string, OptimizerSubject> subjects = {
      {"one_bit_adam", SubjectOf("adam", onebitAlgorithmOneBitAdam)},
      {"one_bit_lamb", SubjectOf("lamb", onebitAlgorithmOneBitLamb)},
      {"zero_one_adam", SubjectOf("zero_one", onebitAlgorithmZeroOneAdam)}};
  const OptimizerSubject& subject = subjects.at(golden["of"]);
  RunRanks(golden["ranks"], [&](onebitComm_t comm, int rank) {
    OptimizerRank mine(subject, comm, rank);
    mine.Import(states[static_cast<size_t>(rank)]);
    EXPECT_EQ(mine.Export(KindOf(golden)), states[static_cast<size_t>(rank)]) << "rank " << rank;
    EXPECT_EQ(mine.Step(7).step, 7u);
  });
}

class GoldenStatesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenStatesTest, LoadsAndIsSavedWithTheSameBytes) {
  const json golden = CaseNamed(GetParam());
  if (golden["of"] == "compressor") {
    LoadCompressors(golden);
  } else if (golden["of"] == "sync") {
    LoadSyncs(golden);
  } else {
    LoadOptimizers(golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Version1, GoldenStatesTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace onebit::testing
