// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Texts and buffers of a test as the bytes that a message channel takes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace onebit::testing {

inline std::span<const std::byte> BytesOf(const void* data, size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return BytesOf(text.data(), text.size());
}

inline std::span<std::byte> WritableBytesOf(void* data, size_t bytes) {
  return {static_cast<std::byte*>(data), bytes};
}

inline std::vector<std::byte> CopyOf(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace onebit::testing
