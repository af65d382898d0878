// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A state in bytes (src/compressor/STATE.md): a head with a table of sections, then the sections,
// every bit of them under a checksum. What the sections hold is the business of those who write
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"

namespace onebit {

inline constexpr uint32_t kStateVersion = 1;

enum class StateKind : uint32_t {
  kRank = 1,
  kGlobal = 2,
  kSync = 3,
  kOptimizerRank = 4,
  kOptimizerGlobal = 5,
};
enum class SectionTag : uint32_t {
  kIdentity = 1,
  kWorker = 2,
  kServer = 3,
  kSync = 4,
  kAccumulator = 5,
  kCompressor = 6,  // a whole state of kind kRank, or kGlobal where it is in such a one
  kOptimizer = 7,
  kValues = 8,
  kElements = 9,
};

struct StateSection {
  SectionTag tag;
  size_t bytes;
};

size_t StateBytes(std::span<const StateSection> sections);

// The error of whoever was given a state of this kind, and loads others.
Status WrongKind(StateKind kind);

class StateWriter {
 public:
  // `blob` has StateBytes(sections) bytes, of any alignment, and outlives the writer. Sections are
  // in ascending order of their tags.
  StateWriter(StateKind kind, std::span<const StateSection> sections, std::byte* blob);

  // Where the content of a section goes.
  std::span<std::byte> section(SectionTag tag) const;
  // Checksums, once all sections are written.
  void Seal();

 private:
  std::span<std::byte> blob_;
};

class StateReader {
 public:
  // Checks everything but what the sections mean. `blob` must outlive the reader. kInvalidArgument:
  // something else than a state; kMismatch: of a later version of the library; kCorrupt: damaged,
  // or not all of it.
  static Result<StateReader> Open(std::span<const std::byte> blob);

  StateKind kind() const { return kind_; }
  size_t section_count() const { return section_count_; }
  std::optional<std::span<const std::byte>> section(SectionTag tag) const;

 private:
  static constexpr size_t kMostSections = 8;

  StateReader() = default;
  Status ReadTable(std::span<const std::byte> blob, size_t header_bytes);

  struct Row {
    uint32_t tag = 0;
    std::span<const std::byte> content;
  };
  StateKind kind_ = StateKind::kRank;
  size_t section_count_ = 0;
  std::array<Row, kMostSections> rows_;
};

}  // namespace onebit
