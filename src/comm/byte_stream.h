// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Little-endian fields of control messages: a writer that grows, and a reader that never reads past
// the end.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onebit {

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class ByteWriter {
 public:
  template <std::unsigned_integral T>
  ByteWriter& Integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
    }
    return *this;
  }
  // Writes the length, then the content.
  ByteWriter& Block(std::span<const std::byte> content) {
    Integer(static_cast<uint32_t>(content.size()));
    for (const std::byte byte : content) bytes_.push_back(byte);
    return *this;
  }
  ByteWriter& Text(std::string_view text) { return Block(AsBytes(text)); }

  Bytes Take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// After the first field that is not there, everything read is zero and empty, and is_complete() is
// false: check it once, at the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <std::unsigned_integral T>
  T Integer() {
    const auto field = Next(sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < field.size(); ++i)
      value |= std::to_integer<uint64_t>(field[i]) << (8 * i);
    return static_cast<T>(value);
  }
  std::span<const std::byte> Block() { return Next(Integer<uint32_t>()); }
  std::string Text() {
    const auto block = Block();
    return {reinterpret_cast<const char*>(block.data()), block.size()};
  }

  // True if every field was present and nothing is left.
  bool is_complete() const { return !is_short_ && left_.empty(); }
  bool is_short() const { return is_short_; }

 private:
  std::span<const std::byte> Next(size_t size) {
    if (size > left_.size() || is_short_) {
      is_short_ = true;
      return {};
    }
    const auto field = left_.first(size);
    left_ = left_.subspan(size);
    return field;
  }

  std::span<const std::byte> left_;
  bool is_short_ = false;
};

}  // namespace onebit
