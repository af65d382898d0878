// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What an optimizer consists of, by address: for checkpoints, and for ranks that take it over from
// another rank. One list serves both, so that neither can forget a member that the other knows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <variant>
#include <vector>

#include "base/aligned_buffer.h"

namespace onebit::optim {

// Addresses are of members of one optimizer, in an order that its configuration decides, and that
// STATE.md tells. What follows from other members is not in the list.
class StateList {
 public:
  using Bytes = std::span<std::byte>;
  static constexpr size_t kValueBytes = 8;

  // Elements that are the same on all ranks after every step.
  template <typename T>
  void AddReplicated(std::span<T> elements) {
    replicated_.push_back(std::as_writable_bytes(elements));
  }
  void AddReplicated(AlignedBuffer& buffer) {
    AddReplicated(std::span(buffer.data(), buffer.size()));
  }

  // Elements that ranks have of their own between two syncs.
  template <typename T>
  void AddLocal(std::span<T> elements) {
    local_.push_back(std::as_writable_bytes(elements));
  }
  void AddLocal(AlignedBuffer& buffer) { AddLocal(std::span(buffer.data(), buffer.size())); }

  // Counters and other small members, the same on all ranks.
  void AddValue(uint64_t& value) { values_.emplace_back(&value); }
  void AddValue(double& value) { values_.emplace_back(&value); }

  const std::vector<Bytes>& replicated() const { return replicated_; }
  const std::vector<Bytes>& local() const { return local_; }

  // All values behind each other.
  size_t value_bytes() const { return values_.size() * kValueBytes; }
  void ReadValues(std::byte* out) const {
    for (const Value& value : values_) {
      std::visit([&](auto* member) { std::memcpy(out, member, kValueBytes); }, value);
      out += kValueBytes;
    }
  }
  void WriteValues(const std::byte* in) const {
    for (const Value& value : values_) {
      std::visit([&](auto* member) { std::memcpy(member, in, kValueBytes); }, value);
      in += kValueBytes;
    }
  }
  bool AreValuesFinite() const {
    for (const Value& value : values_) {
      const auto* real = std::get_if<double*>(&value);
      if (real != nullptr && !std::isfinite(**real)) return false;
    }
    return true;
  }

  // All elements behind each other, those of this rank at the end.
  size_t element_bytes() const {
    size_t bytes = 0;
    ForEachPart([&](Bytes part) { bytes += part.size(); });
    return bytes;
  }
  void ReadElements(std::byte* out) const {
    ForEachPart([&](Bytes part) {
      if (!part.empty()) std::memcpy(out, part.data(), part.size());
      out += part.size();
    });
  }
  void WriteElements(const std::byte* in) const {
    ForEachPart([&](Bytes part) {
      if (!part.empty()) std::memcpy(part.data(), in, part.size());
      in += part.size();
    });
  }

 private:
  using Value = std::variant<uint64_t*, double*>;

  template <typename Body>
  void ForEachPart(Body body) const {
    for (const Bytes& part : replicated_) body(part);
    for (const Bytes& part : local_) body(part);
  }

  std::vector<Bytes> replicated_;
  std::vector<Bytes> local_;
  std::vector<Value> values_;
};

}  // namespace onebit::optim
