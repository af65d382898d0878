// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/rank_environment.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

// Variables that tell a process its rank. Our ranks must not inherit those of another launcher.
constexpr std::array<std::string_view, 10> kRankVariables = {"RANK",
                                                             "WORLD_SIZE",
                                                             "LOCAL_RANK",
                                                             "LOCAL_WORLD_SIZE",
                                                             "OMPI_COMM_WORLD_RANK",
                                                             "OMPI_COMM_WORLD_SIZE",
                                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                             "PMI_RANK",
                                                             "PMI_SIZE"};

// Makes the loader open `library` before those that LD_PRELOAD names already.
void PutInFront(const std::string& library, std::vector<std::string>* environment) {
  constexpr std::string_view kName = "LD_PRELOAD=";
  for (std::string& variable : *environment) {
    if (!variable.starts_with(kName)) continue;
    const std::string others = variable.substr(kName.size());
    variable = fmt::format("{}{}{}{}", kName, library, others.empty() ? "" : ":", others);
    return;
  }
  environment->push_back(fmt::format("{}{}", kName, library));
}

// True if `place` replaces this variable.
bool IsReplaced(const RankPlace& place, std::string_view name) {
  if (std::find(kRankVariables.begin(), kRankVariables.end(), name) != kRankVariables.end()) {
    return true;
  }
  if (name == kRendezvousVariable) return !place.rendezvous.empty();
  if (name == kJobVariable) return !place.job.empty();
  if (name == kSecretVariable || name == kSecretFileVariable) return !place.secret_file.empty();
  if (name == kMasterAddressVariable || name == kMasterPortVariable) return place.master_port != 0;
  return false;
}

}  // namespace

std::string RandomDigits(int bytes) {
  std::vector<unsigned char> random(static_cast<size_t>(bytes));
  if (getrandom(random.data(), random.size(), 0) != bytes) {
    throw ToolError(fmt::format("cannot get random bytes: {}", ErrnoText()));
  }
  std::string digits;
  for (const unsigned char byte : random) digits += fmt::format("{:02x}", byte);
  return digits;
}

std::string NewJobWord() { return fmt::format("onebit_run-{}", RandomDigits(8)); }

std::vector<std::string> RankEnvironment(const RankPlace& place) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!IsReplaced(place, text.substr(0, text.find('=')))) variables.emplace_back(text);
  }
  const auto add = [&](const char* name, const auto& value) {
    variables.push_back(fmt::format("{}={}", name, value));
  };
  add("RANK", place.rank);
  add("WORLD_SIZE", place.ranks);
  add("LOCAL_RANK", place.local_rank);
  add("LOCAL_WORLD_SIZE", place.local_ranks);
  if (!place.rendezvous.empty()) add(kRendezvousVariable, place.rendezvous);
  if (!place.job.empty()) add(kJobVariable, place.job);
  if (!place.secret_file.empty()) add(kSecretFileVariable, place.secret_file);
  if (place.master_port != 0) {
    add(kMasterAddressVariable, place.master_address);
    add(kMasterPortVariable, place.master_port);
  }
  // PyTorch and NumPy start a thread for each core in every rank otherwise. Torchrun sets it, too.
  constexpr char kOpenMpThreads[] = "OMP_NUM_THREADS";
  if (place.local_ranks > 1 && std::getenv(kOpenMpThreads) == nullptr) add(kOpenMpThreads, 1);
  if (!place.preload.empty()) PutInFront(place.preload, &variables);
  return variables;
}

std::optional<int> LaunchedRank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    if (std::string_view(name) == "SLURM_PROCID" &&
        std::getenv("SLURM_STEP_NUM_TASKS") == nullptr) {
      continue;
    }
    int rank = 0;  // the library says what is wrong with a text that is no number
    const std::string_view digits(text);
    std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    return rank;
  }
  return std::nullopt;
}

bool IsSetByUser(const char* variable) {
  return std::getenv(variable) != nullptr && !LaunchedRank();
}

}  // namespace onebit::perf
