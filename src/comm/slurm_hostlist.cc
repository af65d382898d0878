// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads the list from left to right; of each bracket the first number belongs to the first host.
#include "comm/slurm_hostlist.h"

#include <cctype>
#include <charconv>
#include <cstdint>

namespace onebit {
namespace {

constexpr size_t kMaxNumberDigits = 18;  // fits into 64 bits
constexpr size_t kMaxHostBytes = 255;    // of a name in DNS is 253

bool IsHostCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

class Parser {
 public:
  explicit Parser(std::string_view list) : list_(list) {}

  Result<std::string> FirstHost() {
    ONEBIT_ASSIGN_OR_RETURN(const std::string first, Entry());
    while (Take(',')) {
      const Result<std::string> further = Entry();
      if (!further.ok()) return further.status();
    }
    if (!AtEnd()) return Mistake("a comma or the end");
    return first;
  }

 private:
  // The first host of one entry.
  Result<std::string> Entry() {
    std::string host;
    while (!AtEnd() && Peek() != ',') {
      if (Take('[')) {
        ONEBIT_ASSIGN_OR_RETURN(const std::string_view number, Bracket());
        host += number;
      } else if (IsHostCharacter(Peek())) {
        host += list_[position_++];
      } else {
        return Mistake("a letter, a digit, '-', '_', '.' or '['");
      }
    }
    if (host.empty()) return Mistake("a host name");
    if (host.size() > kMaxHostBytes) return Mistake("a host name of at most 255 characters");
    return host;
  }

  // Reads the rest of a bracket; returns the first number of its first range.
  Result<std::string_view> Bracket() {
    ONEBIT_ASSIGN_OR_RETURN(const std::string_view first, Range());
    while (Take(',')) {
      const Result<std::string_view> further = Range();
      if (!further.ok()) return further.status();
    }
    if (!Take(']')) return Mistake("',' or ']'");
    return first;
  }

  Result<std::string_view> Range() {
    ONEBIT_ASSIGN_OR_RETURN(const std::string_view first, Number());
    if (Take('-')) {
      ONEBIT_ASSIGN_OR_RETURN(const std::string_view last, Number());
      if (ValueOf(last) < ValueOf(first)) return Mistake("a range that does not run backwards");
    }
    return first;
  }

  Result<std::string_view> Number() {
    const size_t begin = position_;
    while (!AtEnd() && Peek() >= '0' && Peek() <= '9') ++position_;
    const std::string_view digits = list_.substr(begin, position_ - begin);
    if (digits.empty()) return Mistake("a digit");
    if (digits.size() > kMaxNumberDigits) return Mistake("a number of at most 18 digits");
    return digits;
  }

  static uint64_t ValueOf(std::string_view digits) {
    uint64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }

  bool AtEnd() const { return position_ == list_.size(); }
  char Peek() const { return list_[position_]; }
  bool Take(char c) {
    if (AtEnd() || Peek() != c) return false;
    ++position_;
    return true;
  }

  Status Mistake(const char* expected) const {
    return Error(Code::kInvalidUsage, "\"{}\" is not a list of hosts: expected {} at character {}",
                 list_, expected, position_ + 1);
  }

  std::string_view list_;
  size_t position_ = 0;
};

}  // namespace

Result<std::string> FirstSlurmHost(std::string_view list) { return Parser(list).FirstHost(); }

}  // namespace onebit
