// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What an optimizer consists of, by address: for checkpoints, and for ranks that take it over from
// another rank. One list serves both, so that neither can forget a member that the other knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/aligned_buffer.h"

namespace onebit::optim {

// Addresses are of members of one optimizer, in an order that depends on its configuration only.
class StateList {
 public:
  using Bytes = std::span<std::byte>;

  // Elements that are the same on all ranks after every step.
  void AddReplicated(Bytes bytes) { replicated_.push_back(bytes); }
  void AddReplicated(AlignedBuffer& buffer) { AddReplicated({buffer.data(), buffer.size()}); }
  template <typename T>
  void AddReplicated(std::span<T> elements) {
    AddReplicated(std::as_writable_bytes(elements));
  }

  // Elements that ranks have of their own between two syncs.
  void AddLocal(Bytes bytes) { local_.push_back(bytes); }
  void AddLocal(AlignedBuffer& buffer) { AddLocal({buffer.data(), buffer.size()}); }

  // Counters and other small members, the same on all ranks.
  template <typename T>
  void AddValue(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    values_.push_back(std::as_writable_bytes(std::span(&value, 1)));
  }

  const std::vector<Bytes>& replicated() const { return replicated_; }
  const std::vector<Bytes>& local() const { return local_; }

  // All values behind each other.
  size_t value_bytes() const {
    size_t bytes = 0;
    for (const Bytes& value : values_) bytes += value.size();
    return bytes;
  }
  void ReadValues(std::byte* out) const {
    for (const Bytes& value : values_) {
      std::memcpy(out, value.data(), value.size());
      out += value.size();
    }
  }
  void WriteValues(const std::byte* in) const {
    for (const Bytes& value : values_) {
      std::memcpy(value.data(), in, value.size());
      in += value.size();
    }
  }

 private:
  std::vector<Bytes> replicated_;
  std::vector<Bytes> local_;
  std::vector<Bytes> values_;
};

}  // namespace onebit::optim
