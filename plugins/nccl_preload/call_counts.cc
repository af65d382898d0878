// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/call_counts.h"

#include <cmath>
#include <cstdio>
#include <string_view>

namespace onebit::preload {
namespace {

constexpr std::string_view kTypeNames[] = {"int8",    "uint8",    "int32",      "uint32",
                                           "int64",   "uint64",   "float16",    "float32",
                                           "float64", "bfloat16", "float8e4m3", "float8e5m2"};

std::string NameOf(DataType type) {
  const auto number = static_cast<size_t>(type);
  return number < std::size(kTypeNames) ? std::string(kTypeNames[number])
                                        : "type " + std::to_string(static_cast<int>(type));
}

}  // namespace

void CallCounts::Count(const CommFacts& comm, const CallFacts& call, Reason reason) {
  const std::lock_guard lock(mutex_);
  Sum& sum = sums_[{std::string(comm.name), comm.ranks, call.operation, call.type, reason}];
  ++sum.calls;
  sum.bytes += TensorBytes(comm, call);
}

void CallCounts::Add(const CommFacts& comm, const Traffic& traffic) {
  const std::lock_guard lock(mutex_);
  ended_[std::string(comm.name)] += traffic;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls;
  nonfinite_calls += other.nonfinite_calls;
  sent_bytes += other.sent_bytes;
  ring_bytes += other.ring_bytes;
  host_seconds += other.host_seconds;
  residuals += other.residuals;
  return *this;
}

uint64_t RingBytes(const CommFacts& comm, const CallFacts& call) {
  if (call.operation == Operation::kRecv) return 0;
  if (call.operation == Operation::kSend) return TensorBytes(comm, call);
  const auto ranks = static_cast<uint64_t>(comm.ranks);
  const uint64_t passes = call.operation == Operation::kAllReduce ? 2 : 1;
  return passes * (ranks - 1) * TensorBytes(comm, call) / ranks;
}

std::string CallCounts::Report(const TrafficByName& live) const {
  const std::lock_guard lock(mutex_);
  TrafficByName all = ended_;
  for (const auto& [name, traffic] : live) all[name] += traffic;
  std::string text;
  for (const auto& [row, sum] : sums_) {
    if (text.empty()) {
      text =
          "communicator          ranks  operation      type        calls             bytes  "
          "outcome\n";
    }
    const std::string_view operation = kOperationNames[static_cast<size_t>(row.operation)];
    char line[256];
    std::snprintf(
        line, sizeof line, "%-20.60s %6d  %-13.*s  %-10s %6llu  %16llu  %s\n",
        row.comm.empty() ? "-" : row.comm.c_str(), row.ranks, static_cast<int>(operation.size()),
        operation.data(), NameOf(row.type).c_str(), static_cast<unsigned long long>(sum.calls),
        static_cast<unsigned long long>(sum.bytes), kReasonNames[static_cast<size_t>(row.reason)]);
    text += line;
  }
  for (const auto& [name, traffic] : all) {
    if (traffic.calls == 0) continue;
    char line[256];
    std::snprintf(line, sizeof line,
                  "%.60s: %llu compressed calls sent %llu bytes, where NCCL's ring sends %llu; "
                  "%llu met a NaN or infinity; %.3f s of host time\n",
                  name.empty() ? "-" : name.c_str(), static_cast<unsigned long long>(traffic.calls),
                  static_cast<unsigned long long>(traffic.sent_bytes),
                  static_cast<unsigned long long>(traffic.ring_bytes),
                  static_cast<unsigned long long>(traffic.nonfinite_calls), traffic.host_seconds);
    text += line;
    if (traffic.residuals.elements == 0) continue;
    const double mean =
        traffic.residuals.sum_of_squares / static_cast<double>(traffic.residuals.elements);
    std::snprintf(
        line, sizeof line,
        "%.60s: the residuals of this rank's inputs have norm %.4g and root mean square %.4g\n",
        name.empty() ? "-" : name.c_str(), std::sqrt(traffic.residuals.sum_of_squares),
        std::sqrt(mean));
    text += line;
  }
  return text;
}

}  // namespace onebit::preload
