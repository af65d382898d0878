// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Names of faults, for people and for settings.
#include "tests/support/fault.h"

#include <array>
#include <charconv>

namespace onebit::testing {
namespace {

struct KindNames {
  Fault::Kind kind;
  std::string_view word;  // as in settings
  std::string_view name;
};

constexpr std::array kKinds = {
    KindNames{Fault::Kind::kNone, "none", "none"},
    KindNames{Fault::Kind::kFlipHeader, "flip-header", "flipped header bit"},
    KindNames{Fault::Kind::kFlipPayload, "flip-payload", "flipped payload bit"},
    KindNames{Fault::Kind::kSetVersion, "version", "other version"},
    KindNames{Fault::Kind::kCutPayload, "cut", "cut payload"},
    KindNames{Fault::Kind::kDuplicate, "duplicate", "duplicate"},
    KindNames{Fault::Kind::kReorder, "reorder", "overtaken message"},
    KindNames{Fault::Kind::kDrop, "drop", "lost message"},
    KindNames{Fault::Kind::kDelay, "delay", "late message"},
    KindNames{Fault::Kind::kRefuse, "refuse", "refused message"},
    KindNames{Fault::Kind::kDisconnect, "disconnect", "silent disconnect"},
    KindNames{Fault::Kind::kPeerError, "peer-error", "reported disconnect"},
    KindNames{Fault::Kind::kKill, "kill", "SIGKILL"},
    KindNames{Fault::Kind::kStop, "stop", "SIGSTOP"},
};

std::string_view TakeWord(std::string_view* text) {
  const size_t end = text->find(' ');
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(end == text->npos ? text->size() : end + 1);
  return word;
}

// Parses "rank=2" into the member of that name.
bool SetMember(std::string_view word, Fault* fault) {
  const size_t equal = word.find('=');
  if (equal == word.npos) return false;
  const std::string_view name = word.substr(0, equal);
  const std::string_view digits = word.substr(equal + 1);
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.begin(), digits.end(), value);
  if (error != std::errc() || stop != digits.end()) return false;
  if (name == "rank") {
    fault->rank = static_cast<int>(value);
  } else if (name == "exchange") {
    fault->exchange = static_cast<int>(value);
  } else if (name == "message") {
    fault->message = value;
  } else if (name == "bit") {
    fault->bit = value;
  } else if (name == "delay_ms") {
    fault->delay_ms = value;
  } else if (name == "comm") {
    fault->comm = static_cast<int>(value);
  } else if (name == "after") {
    fault->is_after = value != 0;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string_view NameOf(Fault::Kind kind) {
  for (const KindNames& names : kKinds) {
    if (names.kind == kind) return names.name;
  }
  return "";
}

std::ostream& operator<<(std::ostream& out, Fault::Kind kind) { return out << NameOf(kind); }

bool NeedsPayload(Fault::Kind kind) {
  return kind == Fault::Kind::kFlipPayload || kind == Fault::Kind::kCutPayload;
}

bool CutsOff(Fault::Kind kind) {
  return kind == Fault::Kind::kDisconnect || kind == Fault::Kind::kPeerError;
}

std::optional<Fault> ParseFault(std::string_view text) {
  const std::string_view word = TakeWord(&text);
  for (const KindNames& names : kKinds) {
    if (names.word != word) continue;
    Fault fault{.kind = names.kind};
    while (!text.empty()) {
      if (!SetMember(TakeWord(&text), &fault)) return std::nullopt;
    }
    return fault;
  }
  return std::nullopt;
}

}  // namespace onebit::testing
