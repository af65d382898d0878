// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/fault_group.h"

#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "api/handles.h"
#include "comm/rendezvous.h"
#include "tests/faults/process_fault_run.h"
#include "tests/support/comm_group.h"
#include "tests/support/faulty_frames.h"
#include "transport/transport.h"

namespace onebit::testing {
namespace {

constexpr uint32_t kSeed = 7401;
// Makes one message per chunk, so that messages can be addressed by number.
constexpr uint64_t kSegmentElements = 4'000'000;
constexpr uint64_t kRegroupTimeoutMs = 10'000;
constexpr std::chrono::milliseconds kConnectTimeout{20'000};

UniqueId NewId() {
  onebitUniqueId id;
  if (const onebitResult_t result = onebitGetUniqueId(&id); result != onebitSuccess) {
    throw std::runtime_error(Explain(result));
  }
  auto decoded = DecodeUniqueId(id.internal);
  if (!decoded.ok()) throw std::runtime_error(decoded.status().text());
  return std::move(decoded).value();
}

FaultSwitch* SwitchOf(const std::string& transport) {
  const auto started = Transport::Get("faulty" + transport);
  if (!started.ok()) throw std::runtime_error(started.status().text());
  return &static_cast<FaultyContext*>(started.value()->context())->faults;
}

}  // namespace

FaultGroup::FaultGroup(const std::string& transport, const CallKind& kind, size_t count,
                       uint64_t timeout_ms)
    : kind_(kind), count_(count), faults_(SwitchOf(transport)) {
  faults_->Arm({});
  Join("faulty" + transport, timeout_ms);
  for (int rank = 0; rank < kCaseRanks && kind.mode; ++rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = *kind.mode;
    config.block = 64;
    compressors_.push_back(NewCompressor(comm(rank), count, onebitFloat32, config));
  }
}

void FaultGroup::Join(const std::string& transport, uint64_t timeout_ms) {
  const UniqueId id = NewId();
  std::vector<Result<std::unique_ptr<Comm>>> joined;
  for (int rank = 0; rank < kCaseRanks; ++rank) {
    joined.emplace_back(Error(Code::kInternalError, "not joined"));
  }
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      threads.emplace_back([&, rank] {
        JoinOptions options;
        options.control.rank = rank;
        options.control.ranks = kCaseRanks;
        options.control.connect_timeout = kConnectTimeout;
        options.control.process = NameOfThisProcess();
        options.locate = [&id](Deadline) { return Result<UniqueId>(id); };
        options.transport = transport;
        options.comm.timeout_ms = timeout_ms;
        options.comm.regroup_timeout_ms = kRegroupTimeoutMs;
        options.comm.segment_elements = kSegmentElements;
        options.comm.one_exchange_elements = kind_.is_one_exchange ? SIZE_MAX : 0;
        joined[static_cast<size_t>(rank)] = Comm::Join(options);
      });
    }
  }
  for (auto& one : joined) {
    if (!one.ok()) throw std::runtime_error(one.status().text());
    comms_.emplace_back(new onebitComm_s(std::move(one).value()));
  }
}

std::vector<CallsOfRank> FaultGroup::Call(int calls) {
  std::vector<CallsOfRank> all(comms_.size());
  const int first_call = calls_;
  calls_ += calls;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kCaseRanks; ++rank) {
    threads.emplace_back([&, rank] {
      CallsOfRank& mine = all[static_cast<size_t>(rank)];
      for (int call = first_call; call < first_call + calls; ++call) {
        std::vector<float> values = InputOf(rank, call, count_);
        mine.result = onebitAllReduce(values.data(), values.data(), count_, onebitFloat32,
                                      onebitAvg, compressor(rank), comm(rank), nullptr);
        mine.end = std::chrono::steady_clock::now();
        if (mine.result != onebitSuccess) {
          mine.text = onebitGetLastError(nullptr);
          return;
        }
        mine.outputs.push_back(std::move(values));
      }
    });
  }
  threads.clear();
  return all;
}

uint64_t FaultGroup::epoch(int rank) const { return StatsOf(compressor(rank)).epoch; }

std::vector<float> FaultGroup::InputOf(int rank, int call, size_t count) {
  std::mt19937 random(kSeed + static_cast<uint32_t>(100 * call + rank));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

const Reference& ReferenceOf(const CallKind& kind, MessageSize size) {
  static std::map<std::pair<std::string, MessageSize>, Reference> made;
  const auto key = std::pair(std::string(kind.name), size);
  if (const auto found = made.find(key); found != made.end()) return found->second;
  FaultGroup group("local", kind, CountOf(kind, size), ExpectationOf({}).timeout_ms);
  Reference reference;
  for (int call = 0; call <= kCaseCalls; ++call) {
    if (kind.mode) {
      std::vector<Residuals> residuals;
      for (int rank = 0; rank < kCaseRanks; ++rank) {
        residuals.push_back(ResidualsOf(group.compressor(rank)));
      }
      reference.residuals.push_back(std::move(residuals));
    }
    if (call == kCaseCalls) break;
    auto calls = group.Call(1);
    for (const CallsOfRank& one : calls) {
      if (one.result != onebitSuccess) throw std::runtime_error(one.text);
    }
    reference.outputs.push_back(std::move(calls[0].outputs[0]));
  }
  return made[key] = std::move(reference);
}

}  // namespace onebit::testing
