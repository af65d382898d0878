// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The addresses of an optimizer's state, for checkpoints and for ranks that receive it from another
// rank. One list serves both, so that neither can forget a member that the other knows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <variant>
#include <vector>

#include "optim/arithmetic.h"

namespace onebit::optim {

// Addresses are of members of one optimizer, in an order that its configuration determines and
// STATE.md documents. State that follows from other members is not in the list.
class StateList {
 public:
  using Bytes = std::span<std::byte>;
  static constexpr size_t kValueBytes = 8;

  // A run of elements.
  struct Part {
    Bytes bytes;
    bool is_on_host = false;  // if false, in the optimizer's location
  };

  // Adds elements that are the same on all ranks after every step.
  void AddReplicated(const Memory& memory) {
    replicated_.push_back({.bytes = {memory.data(), memory.size()}});
  }
  void AddReplicated(std::span<float> elements) {
    replicated_.push_back({.bytes = std::as_writable_bytes(elements)});
  }
  void AddReplicatedOnHost(std::span<double> elements) {
    replicated_.push_back({.bytes = std::as_writable_bytes(elements), .is_on_host = true});
  }

  // Adds elements that differ between ranks between two syncs.
  void AddLocal(const Memory& memory) {
    local_.push_back({.bytes = {memory.data(), memory.size()}});
  }
  void AddLocal(std::span<float> elements) {
    local_.push_back({.bytes = std::as_writable_bytes(elements)});
  }

  // Adds counters and other small members, the same on all ranks.
  void AddValue(uint64_t& value) { values_.emplace_back(&value); }
  void AddValue(double& value) { values_.emplace_back(&value); }

  const std::vector<Part>& replicated() const { return replicated_; }
  const std::vector<Part>& local() const { return local_; }

  // All values, concatenated.
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

  // All elements, concatenated, with those of this rank at the end.
  size_t element_bytes() const {
    size_t bytes = 0;
    ForEachPart([&](const Part& part) { bytes += part.bytes.size(); });
    return bytes;
  }
  // Copies to and from host memory; complete after the Await of `arithmetic`.
  void ReadElements(Arithmetic* arithmetic, std::byte* out) const {
    ForEachPart([&](const Part& part) {
      Copy(arithmetic, part, out, part.bytes.data());
      out += part.bytes.size();
    });
  }
  void WriteElements(Arithmetic* arithmetic, const std::byte* in) const {
    ForEachPart([&](const Part& part) {
      Copy(arithmetic, part, part.bytes.data(), in);
      in += part.bytes.size();
    });
  }

 private:
  using Value = std::variant<uint64_t*, double*>;

  template <typename Body>
  void ForEachPart(Body body) const {
    for (const Part& part : replicated_) body(part);
    for (const Part& part : local_) body(part);
  }
  static void Copy(Arithmetic* arithmetic, const Part& part, std::byte* to, const std::byte* from) {
    if (!part.is_on_host) {
      arithmetic->Copy(to, from, part.bytes.size());
    } else if (!part.bytes.empty()) {
      std::memcpy(to, from, part.bytes.size());
    }
  }

  std::vector<Part> replicated_;
  std::vector<Part> local_;
  std::vector<Value> values_;
};

}  // namespace onebit::optim
