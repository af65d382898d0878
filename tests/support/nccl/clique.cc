// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums in rank order and rounds once.
#include "tests/support/nccl/clique.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "kernels/reference/float_formats.h"

namespace onebit::testing::nccl {
namespace {

using kernels::reference::Bf16OfFloat;
using kernels::reference::FloatOfBf16;
using kernels::reference::FloatOfFp16;
using kernels::reference::Fp16OfFloat;

std::mutex last_error_mutex;
// Never destroyed, because callers keep pointers to the texts and threads may outlive main.
auto& errors = *new std::set<std::string>;
const char* last_error = "";

template <typename Value>
Value Get(const void* array, size_t i) {
  Value value;
  std::memcpy(&value, static_cast<const std::byte*>(array) + i * sizeof value, sizeof value);
  return value;
}

float Load(ncclDataType_t type, const void* array, size_t i) {
  switch (type) {
    case ncclFloat32:
      return Get<float>(array, i);
    case ncclFloat16:
      return FloatOfFp16(Get<uint16_t>(array, i));
    case ncclBfloat16:
      return FloatOfBf16(Get<uint16_t>(array, i));
    case ncclInt8:
      return Get<int8_t>(array, i);
  }
  return 0;
}

void Store(ncclDataType_t type, std::byte* array, size_t i, float value) {
  std::byte* to = array + i * BytesOf(type);
  if (type == ncclFloat32) std::memcpy(to, &value, sizeof value);
  if (type == ncclInt8) *to = static_cast<std::byte>(static_cast<int8_t>(value));
  if (type == ncclFloat32 || type == ncclInt8) return;
  const uint16_t half = type == ncclFloat16 ? Fp16OfFloat(value) : Bf16OfFloat(value);
  std::memcpy(to, &half, sizeof half);
}

}  // namespace

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
      return 4;
  }
  return 0;
}

void SetLastError(const std::string& text) {
  const std::lock_guard lock(last_error_mutex);
  last_error = errors.insert(text).first->c_str();
}

const char* LastError() {
  const std::lock_guard lock(last_error_mutex);
  return last_error;
}

bool Collective::IsLike(const Collective& other) const {
  return kind == other.kind && count == other.count && type == other.type && op == other.op &&
         root == other.root;
}

void Collective::Compute() {
  const size_t bytes = count * BytesOf(type);
  if (kind == Kind::kBroadcast) {
    result.resize(bytes);
    std::memcpy(result.data(), inputs[static_cast<size_t>(root)], bytes);
    return;
  }
  const size_t parts = kind == Kind::kAllReduce ? 1 : inputs.size();
  result.resize(bytes * parts);
  if (kind == Kind::kAllGather) {
    for (size_t i = 0; i < parts; ++i) std::memcpy(&result[i * bytes], inputs[i], bytes);
    return;
  }
  for (size_t i = 0; i < count * parts; ++i) {
    float sum = 0;
    for (const void* input : inputs) sum += Load(type, input, i);
    Store(type, result.data(), i, op == ncclAvg ? sum / static_cast<float>(inputs.size()) : sum);
  }
}

std::span<const std::byte> Collective::ResultOf(int rank) const {
  if (kind != Kind::kReduceScatter || result.empty()) return result;
  const size_t bytes = result.size() / inputs.size();
  return std::span(result).subspan(static_cast<size_t>(rank) * bytes, bytes);
}

Clique::Clique(int rank_count)
    : ranks(rank_count),
      members(static_cast<size_t>(rank_count)),
      mail(static_cast<size_t>(rank_count) * static_cast<size_t>(rank_count)) {
  for (Member& member : members) member.connects_to.resize(members.size());
}

bool Clique::IsComplete() const {
  return std::all_of(members.begin(), members.end(),
                     [](const Member& member) { return member.has_come; });
}

void Clique::BreakAll(ncclResult_t error) {
  for (Member& member : members) member.error = error;
  changed.notify_all();
}

}  // namespace onebit::testing::nccl
