// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reduces in rank order and rounds once.
#include "tests/support/nccl/clique.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <type_traits>
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

template <typename Number>
Number Combine(ncclRedOp_t op, Number a, Number b) {
  if (op == ncclMax) return std::max(a, b);
  if (op == ncclMin) return std::min(a, b);
  if constexpr (std::is_integral_v<Number>) {
    using Unsigned = std::make_unsigned_t<Number>;  // wraps
    return static_cast<Number>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// Reduces `count` elements of type Stored, which `load` makes a Number and `store` a Stored.
template <typename Stored, typename Load, typename Store>
void ReduceAs(const std::vector<const void*>& inputs, size_t count, ncclRedOp_t op,
              const Load& load, const Store& store, std::byte* result) {
  const auto get = [&](const void* array, size_t i) {
    Stored stored;
    std::memcpy(&stored, static_cast<const std::byte*>(array) + i * sizeof stored, sizeof stored);
    return load(stored);
  };
  using Number = decltype(get(nullptr, 0));
  for (size_t i = 0; i < count; ++i) {
    Number number = get(inputs[0], i);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      number = Combine<Number>(op, number, get(inputs[rank], i));
    }
    if (op == ncclAvg) number = static_cast<Number>(number / static_cast<Number>(inputs.size()));
    const Stored stored = store(number);
    std::memcpy(result + i * sizeof stored, &stored, sizeof stored);
  }
}

void Reduce(ncclDataType_t type, const std::vector<const void*>& inputs, size_t count,
            ncclRedOp_t op, std::byte* result) {
  const auto same = [](auto value) { return value; };
  switch (type) {
    case ncclInt8:
      return ReduceAs<int8_t>(inputs, count, op, same, same, result);
    case ncclUint8:
      return ReduceAs<uint8_t>(inputs, count, op, same, same, result);
    case ncclInt32:
      return ReduceAs<int32_t>(inputs, count, op, same, same, result);
    case ncclInt64:
      return ReduceAs<int64_t>(inputs, count, op, same, same, result);
    case ncclFloat16:
      return ReduceAs<uint16_t>(inputs, count, op, FloatOfFp16, Fp16OfFloat, result);
    case ncclBfloat16:
      return ReduceAs<uint16_t>(inputs, count, op, FloatOfBf16, Bf16OfFloat, result);
    case ncclFloat32:
      return ReduceAs<float>(inputs, count, op, same, same, result);
    case ncclFloat64:
      return ReduceAs<double>(inputs, count, op, same, same, result);
  }
}

}  // namespace

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
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

size_t InputBytes(const Collective& collective, int ranks, int rank) {
  const size_t bytes = collective.count * BytesOf(collective.type);
  switch (collective.kind) {
    case Collective::Kind::kReduceScatter:
      return bytes * static_cast<size_t>(ranks);
    case Collective::Kind::kBroadcast:
      return rank == collective.root ? bytes : 0;
    case Collective::Kind::kAllReduce:
    case Collective::Kind::kAllGather:
      break;
  }
  return bytes;
}

size_t OutputBytes(const Collective& collective, int ranks) {
  const size_t bytes = collective.count * BytesOf(collective.type);
  const bool is_gather = collective.kind == Collective::Kind::kAllGather;
  return is_gather ? bytes * static_cast<size_t>(ranks) : bytes;
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
  Reduce(type, inputs, count * parts, op, result.data());
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

bool Clique::Enter(int rank, int device) {
  Member& member = members[static_cast<size_t>(rank)];
  if (member.has_come) return false;
  member.has_come = true;
  member.device = device;
  changed.notify_all();
  return true;
}

void Clique::BreakAll(ncclResult_t error) {
  for (Member& member : members) member.error = error;
  changed.notify_all();
}

}  // namespace onebit::testing::nccl
