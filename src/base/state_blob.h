// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A state in bytes (src/state/STATE.md) is a head with a table of sections, then the sections.
// Checksums cover every bit. The meaning of a section's content is known to its writers and readers
// alone.
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
  kCompressor = 6,  // a whole state: of kind kGlobal inside a global state, else kRank
  kOptimizer = 7,
  kValues = 8,
  kElements = 9,
};

struct StateSection {
  SectionTag tag;
  size_t bytes;
};

size_t StateBytes(std::span<const StateSection> sections);

// The error of a reader that was given a state of this kind and loads others.
Status WrongKind(StateKind kind);

class StateWriter {
 public:
  // `blob` has StateBytes(sections) bytes, of any alignment, and outlives the writer. Sections are
  // in ascending order of their tags.
  StateWriter(StateKind kind, std::span<const StateSection> sections, std::byte* blob);

  // Memory for the content of a section.
  std::span<std::byte> section(SectionTag tag) const;
  // Writes the checksums. Call it once all sections are written.
  void Seal();

 private:
  std::span<std::byte> blob_;
};

class StateReader {
 public:
  // Checks everything but the meaning of the sections. `blob` must outlive the reader. Errors:
  // kInvalidArgument, the bytes are no state; kMismatch, a later version of the library wrote it;
  // kCorrupt, it is damaged or incomplete.
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
