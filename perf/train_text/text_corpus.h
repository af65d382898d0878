// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The text that a run learns from: its files, and the part that is held out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace onebit::train {

/** Directory of Debian's package `fortunes`. */
inline constexpr const char* kDefaultTextPath = "/usr/share/games/fortunes";

/** Texts shorter than this are refused: both parts must hold whole contexts. */
inline constexpr size_t kMinTextBytes = 1024;

/** The text is missing or unusable; the message says what to do. */
class CorpusError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Corpus {
  std::vector<uint8_t> bytes;
  size_t train_bytes = 0;  // bytes[0, train_bytes) are for training, the rest is held out
  size_t file_count = 0;
  uint64_t hash = 0;  // FNV-1a of all bytes
};

/**
 * Reads a file, or the files of a directory in the bytewise order of their names.
 *
 * Only regular files of a directory count: symbolic links would include the same text twice, and
 * `*.dat` are indices. Subdirectories are skipped. The last twentieth of the text is held out.
 *
 * Throws CorpusError.
 */
Corpus LoadCorpus(const std::string& path);

/** FNV-1a, 64 bits. */
uint64_t HashBytes(std::span<const uint8_t> bytes);

}  // namespace onebit::train
