// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/state_blob.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/digest.h"

namespace onebit {
namespace {

constexpr std::string_view kMagic = "1BITSTAT";
constexpr size_t kHeadBytes = 40;
constexpr size_t kRowBytes = 24;
constexpr size_t kAlignment = 8;  // of sections, counted from the beginning of the blob

// Offsets in the head and in a row of its table, as STATE.md specifies them.
enum HeadOffset : size_t {
  kAtMagic = 0,
  kAtVersion = 8,
  kAtKind = 12,
  kAtTotal = 16,
  kAtHeaderBytes = 24,
  kAtSectionCount = 28,
  kAtCheck = 32,
};
enum RowOffset : size_t { kAtTag = 0, kAtBytes = 8, kAtSectionCheck = 16 };

template <typename T>
void Put(std::byte* bytes, size_t offset, T value) {
  std::memcpy(bytes + offset, &value, sizeof(value));
}
template <typename T>
T Get(const std::byte* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(value));
  return value;
}

constexpr size_t Padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

constexpr size_t HeaderBytes(size_t sections) { return kHeadBytes + sections * kRowBytes; }

// The member that holds the checksum counts as zero.
uint64_t HeaderCheck(std::span<const std::byte> header) {
  constexpr size_t kBehind = kAtCheck + sizeof(uint64_t);
  return DigestOf(header.subspan(kBehind), DigestOf(header.first(kAtCheck), 0));
}

uint64_t SectionCheck(uint32_t tag, std::span<const std::byte> padded) {
  return DigestOf(padded, tag);
}

Status Truncated(size_t bytes, uint64_t needed) {
  return Error(Code::kCorrupt, "the state is truncated: {} bytes of at least {}", bytes, needed);
}

Status Damaged(const char* what) {
  return Error(Code::kCorrupt, "the state is damaged: {}; take another copy of it", what);
}

}  // namespace

size_t StateBytes(std::span<const StateSection> sections) {
  size_t bytes = HeaderBytes(sections.size());
  for (const StateSection& section : sections) bytes += Padded(section.bytes);
  return bytes;
}

Status WrongKind(StateKind kind) {
  const char* subject = "";
  switch (kind) {
    case StateKind::kRank:
    case StateKind::kGlobal:
      subject = "a compressor: onebitCompressorImport";
      break;
    case StateKind::kSync:
      subject = "a sync: onebitSyncImport";
      break;
    case StateKind::kOptimizerRank:
    case StateKind::kOptimizerGlobal:
      subject = "an optimizer: onebitOptimizerImport";
      break;
  }
  return Error(Code::kMismatch, "the state is that of {} loads it", subject);
}

StateWriter::StateWriter(StateKind kind, std::span<const StateSection> sections, std::byte* blob)
    : blob_(blob, StateBytes(sections)) {
  const size_t header_bytes = HeaderBytes(sections.size());
  std::memset(blob, 0, header_bytes);
  std::memcpy(blob + kAtMagic, kMagic.data(), kMagic.size());
  Put(blob, kAtVersion, kStateVersion);
  Put(blob, kAtKind, static_cast<uint32_t>(kind));
  Put(blob, kAtTotal, uint64_t{blob_.size()});
  Put(blob, kAtHeaderBytes, static_cast<uint32_t>(header_bytes));
  Put(blob, kAtSectionCount, static_cast<uint32_t>(sections.size()));
  std::byte* row = blob + kHeadBytes;
  std::byte* content = blob + header_bytes;
  for (const StateSection& section : sections) {
    Put(row, kAtTag, static_cast<uint32_t>(section.tag));
    Put(row, kAtBytes, uint64_t{section.bytes});
    std::memset(content + section.bytes, 0, Padded(section.bytes) - section.bytes);
    row += kRowBytes;
    content += Padded(section.bytes);
  }
}

std::span<std::byte> StateWriter::section(SectionTag tag) const {
  const std::byte* row = blob_.data() + kHeadBytes;
  std::byte* content = blob_.data() + Get<uint32_t>(blob_.data(), kAtHeaderBytes);
  for (uint32_t left = Get<uint32_t>(blob_.data(), kAtSectionCount); left > 0; --left) {
    const auto bytes = static_cast<size_t>(Get<uint64_t>(row, kAtBytes));
    if (Get<uint32_t>(row, kAtTag) == static_cast<uint32_t>(tag)) return {content, bytes};
    row += kRowBytes;
    content += Padded(bytes);
  }
  return {};
}

void StateWriter::Seal() {
  const auto header_bytes = size_t{Get<uint32_t>(blob_.data(), kAtHeaderBytes)};
  std::byte* row = blob_.data() + kHeadBytes;
  std::span<const std::byte> left = blob_.subspan(header_bytes);
  for (; row < blob_.data() + header_bytes; row += kRowBytes) {
    const size_t padded = Padded(static_cast<size_t>(Get<uint64_t>(row, kAtBytes)));
    Put(row, kAtSectionCheck, SectionCheck(Get<uint32_t>(row, kAtTag), left.first(padded)));
    left = left.subspan(padded);
  }
  Put(blob_.data(), kAtCheck, HeaderCheck(blob_.first(header_bytes)));
}

Result<StateReader> StateReader::Open(std::span<const std::byte> blob) {
  const size_t compared = std::min(blob.size(), kMagic.size());
  if (compared > 0 && std::memcmp(blob.data(), kMagic.data(), compared) != 0) {
    return Error(Code::kInvalidArgument,
                 "these {} bytes are not a onebit state: they do not begin with \"{}\"",
                 blob.size(), kMagic);
  }
  if (blob.size() < kHeadBytes) return Truncated(blob.size(), kHeadBytes);
  // All versions have these members of the head and this checksum.
  const auto header_bytes = size_t{Get<uint32_t>(blob.data(), kAtHeaderBytes)};
  if (header_bytes < kHeadBytes) return Damaged("its header is too short");
  if (header_bytes > blob.size()) return Truncated(blob.size(), header_bytes);
  if (Get<uint64_t>(blob.data(), kAtCheck) != HeaderCheck(blob.first(header_bytes))) {
    return Damaged("the checksum of its header is wrong");
  }
  if (const auto version = Get<uint32_t>(blob.data(), kAtVersion); version != kStateVersion) {
    return Error(
        Code::kMismatch,
        "the state has version {}, this library reads {}: load it with the library that wrote it",
        version, kStateVersion);
  }
  const auto total = Get<uint64_t>(blob.data(), kAtTotal);
  if (total > blob.size()) return Truncated(blob.size(), total);
  if (total < blob.size()) {
    return Error(Code::kCorrupt, "the state has {} bytes, but {} were given", total, blob.size());
  }
  StateReader reader;
  ONEBIT_TRY(reader.ReadTable(blob, header_bytes));
  return reader;
}

// Trusts no size in the table before comparing it with the bytes that are there.
Status StateReader::ReadTable(std::span<const std::byte> blob, size_t header_bytes) {
  const auto kind = Get<uint32_t>(blob.data(), kAtKind);
  section_count_ = Get<uint32_t>(blob.data(), kAtSectionCount);
  if (kind < static_cast<uint32_t>(StateKind::kRank) ||
      kind > static_cast<uint32_t>(StateKind::kOptimizerGlobal)) {
    return Damaged("its kind is unknown");
  }
  kind_ = static_cast<StateKind>(kind);
  if (section_count_ > kMostSections || header_bytes != HeaderBytes(section_count_)) {
    return Damaged("its table of sections has the wrong length");
  }
  std::span<const std::byte> left = blob.subspan(header_bytes);
  for (size_t i = 0; i < section_count_; ++i) {
    const std::byte* row = blob.data() + HeaderBytes(i);
    rows_[i].tag = Get<uint32_t>(row, kAtTag);
    const auto bytes = Get<uint64_t>(row, kAtBytes);
    if (bytes > left.size() || Padded(bytes) > left.size()) {
      return Damaged("a section is longer than the state");
    }
    if (i > 0 && rows_[i].tag <= rows_[i - 1].tag) return Damaged("its sections are out of order");
    if (Get<uint64_t>(row, kAtSectionCheck) !=
        SectionCheck(rows_[i].tag, left.first(Padded(bytes)))) {
      return Damaged("the checksum of a section is wrong");
    }
    rows_[i].content = left.first(bytes);
    left = left.subspan(Padded(bytes));
  }
  return left.empty() ? OkStatus() : Damaged("there are bytes after its last section");
}

std::optional<std::span<const std::byte>> StateReader::section(SectionTag tag) const {
  for (size_t i = 0; i < section_count_; ++i) {
    if (rows_[i].tag == static_cast<uint32_t>(tag)) return rows_[i].content;
  }
  return std::nullopt;
}

}  // namespace onebit
