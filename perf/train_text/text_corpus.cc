// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Selects, orders and joins the files of a corpus.
#include "perf/train_text/text_corpus.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/core.h>

namespace onebit::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeldOutDivisor = 20;  // 5 %

bool BelongsToCorpus(const fs::directory_entry& entry) {
  // symlink_status gives the type of the entry itself, not of a link's target.
  return entry.symlink_status().type() == fs::file_type::regular &&
         !entry.path().filename().native().ends_with(".dat");
}

std::vector<fs::path> FilesOfDirectory(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (BelongsToCorpus(entry)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    // char_traits<char> compares as unsigned char: the bytewise order, whatever the locale.
    return a.filename().native() < b.filename().native();
  });
  return files;
}

void AppendFile(const fs::path& path, std::vector<uint8_t>& bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw CorpusError(fmt::format("{}: {}", path.native(), std::strerror(errno)));
  std::vector<char> buffer(size_t{1} << 16);
  do {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + file.gcount());
  } while (file);
  if (file.bad()) throw CorpusError(fmt::format("{}: reading failed", path.native()));
}

[[noreturn]] void ThrowMissing(const std::string& path, const std::string& cause) {
  throw CorpusError(
      fmt::format("{}: {}; name a text with --text, or install the default one, {} (Debian and "
                  "Ubuntu: apt install fortunes)",
                  path, cause, kDefaultTextPath));
}

}  // namespace

Corpus LoadCorpus(const std::string& path) {
  Corpus corpus;
  try {
    const fs::file_status status = fs::status(path);
    if (fs::is_directory(status)) {
      const std::vector<fs::path> files = FilesOfDirectory(path);
      if (files.empty()) ThrowMissing(path, "no regular file that is not *.dat in this directory");
      for (const fs::path& file : files) AppendFile(file, corpus.bytes);
      corpus.file_count = files.size();
    } else if (fs::exists(status)) {
      AppendFile(path, corpus.bytes);
      corpus.file_count = 1;
    } else {
      ThrowMissing(path, "no such file or directory");
    }
  } catch (const fs::filesystem_error& error) {
    ThrowMissing(path, error.code().message());
  }
  if (corpus.bytes.size() < kMinTextBytes) {
    throw CorpusError(fmt::format("{}: {} bytes of text, at least {} are needed", path,
                                  corpus.bytes.size(), kMinTextBytes));
  }
  corpus.train_bytes = corpus.bytes.size() - corpus.bytes.size() / kHeldOutDivisor;
  corpus.hash = HashBytes(corpus.bytes);
  return corpus;
}

uint64_t HashBytes(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace onebit::train
