// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/path_pattern.h"

#include <unistd.h>

namespace onebit {
namespace {

// Calls `text` for characters of the pattern that stand for themselves, `letter` for placeholders.
template <typename Text, typename Letter>
void ReadPattern(const std::string& pattern, const Text& text, const Letter& letter) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      text(pattern[i]);
    } else {
      letter(pattern[++i]);
    }
  }
}

}  // namespace

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string ExpandPath(const std::string& pattern, std::optional<int> rank) {
  std::string path;
  ReadPattern(
      pattern, [&](char c) { path += c; },
      [&](char letter) {
        if (letter == 'h') {
          path += HostName();
        } else if (letter == 'p') {
          path += std::to_string(getpid());
        } else if (letter == 'r' && rank.has_value()) {
          path += std::to_string(*rank);
        } else {
          path += letter;
        }
      });
  return path;
}

bool HasPlaceholder(const std::string& pattern, char letter) {
  bool has_letter = false;
  ReadPattern(
      pattern, [](char) {}, [&](char found) { has_letter |= found == letter; });
  return has_letter;
}

}  // namespace onebit
