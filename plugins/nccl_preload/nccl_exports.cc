// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads the table of dynamic symbols. Every offset and length comes from the file, so each is
// compared with the file's size before it is used.
#include "plugins/nccl_preload/nccl_exports.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

namespace onebit::preload {
namespace {

using Bytes = std::span<const std::byte>;

// NCCL's log has a text with what ncclGetVersion would tell.
constexpr std::string_view kVersionText = "NCCL version ";

constexpr const char* kDropInNames[] = {
#define ONEBIT_WRAPPED(name) "nccl" #name, "pnccl" #name,
#define ONEBIT_PASSED(name) "nccl" #name, "pnccl" #name,
#define ONEBIT_PASSED_ONCE(name) "nccl" #name,
#include "plugins/nccl_preload/nccl_names.inc"
#undef ONEBIT_WRAPPED
#undef ONEBIT_PASSED
#undef ONEBIT_PASSED_ONCE
};

struct Section {
  std::string_view name;
  uint32_t type;
  uint32_t link;  // number of the section that has its texts
  Bytes bytes;
};

// Returns nothing if the content ends before the part does.
Bytes PartOf(Bytes content, uint64_t offset, uint64_t bytes) {
  if (offset > content.size() || bytes > content.size() - offset) return {};
  return content.subspan(offset, bytes);
}

// Copies whole elements, because a table may begin at any address.
template <typename Element>
std::vector<Element> TableIn(Bytes bytes) {
  std::vector<Element> table(bytes.size() / sizeof(Element));
  if (!table.empty()) std::memcpy(table.data(), bytes.data(), table.size() * sizeof(Element));
  return table;
}

std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The text at `offset`, which a zero byte ends.
std::string_view TextAt(Bytes texts, size_t offset) {
  const std::string_view all = TextOf(texts);
  if (offset >= all.size()) return {};
  return all.substr(offset, all.find('\0', offset) - offset);
}

// Returns no sections if the content is no library of this processor's word and byte order.
std::vector<Section> SectionsIn(Bytes content) {
  constexpr auto kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  const auto heads = TableIn<Elf64_Ehdr>(PartOf(content, 0, sizeof(Elf64_Ehdr)));
  if (heads.empty() || std::memcmp(heads[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      heads[0].e_ident[EI_CLASS] != ELFCLASS64 || heads[0].e_ident[EI_DATA] != kOrder) {
    return {};
  }
  const auto headers = TableIn<Elf64_Shdr>(
      PartOf(content, heads[0].e_shoff, uint64_t{heads[0].e_shnum} * sizeof(Elf64_Shdr)));
  std::vector<Section> sections;
  for (const Elf64_Shdr& header : headers) {
    const bool is_in_file = header.sh_type != SHT_NOBITS;
    sections.push_back(
        {.type = header.sh_type,
         .link = header.sh_link,
         .bytes = is_in_file ? PartOf(content, header.sh_offset, header.sh_size) : Bytes()});
  }
  if (heads[0].e_shstrndx >= sections.size()) return sections;
  const Bytes names = sections[heads[0].e_shstrndx].bytes;
  for (size_t i = 0; i < sections.size(); ++i) {
    sections[i].name = TextAt(names, headers[i].sh_name);
  }
  return sections;
}

bool IsNcclName(std::string_view name) {
  return name.starts_with("nccl") || name.starts_with("pnccl");
}

// Returns how many of NCCL's functions the library expects others to have.
size_t AddNames(Bytes symbols, Bytes texts, std::vector<std::string>* exported) {
  size_t bound = 0;
  for (const Elf64_Sym& symbol : TableIn<Elf64_Sym>(symbols)) {
    const auto binding = ELF64_ST_BIND(symbol.st_info);
    const std::string_view name = TextAt(texts, symbol.st_name);
    if (!IsNcclName(name) || (binding != STB_GLOBAL && binding != STB_WEAK)) continue;
    if (symbol.st_shndx == SHN_UNDEF) {
      ++bound;
    } else {
      exported->emplace_back(name);
    }
  }
  return bound;
}

// LD_PRELOAD comes before functions that are bound by name, and before no others.
std::string NotNccl(size_t bound) {
  return bound > 0
             ? "it is not NCCL but a program that uses it, and binds " + std::to_string(bound) +
                   " of NCCL's functions by name, so the interposer sees its calls"
             : "it is not NCCL and binds none of its functions by name: if it uses NCCL, it opens "
               "it itself or has it linked in, where nothing sees its calls";
}

// "2.28.9+cuda13.0" of "... NCCL version 2.28.9+cuda13.0 ...".
std::string VersionIn(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = text.find(kVersionText); at != text.npos; at = text.find(kVersionText, at)) {
    at += kVersionText.size();
    const size_t end = std::min(
        text.find_first_not_of("0123456789.+abcdefghijklmnopqrstuvwxyz-", at), text.size());
    if (at < text.size() && is_digit(text[at])) return std::string(text.substr(at, end - at));
  }
  return "";
}

// A file in memory, as long as this object lives.
class MappedFile {
 public:
  // Sets *error if that fails.
  MappedFile(const char* path, std::string* error) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (file < 0 || fstat(file, &about) != 0) {
      *error = std::strerror(errno);
    } else if (!S_ISREG(about.st_mode)) {
      *error = "it is not a regular file";
    } else if (about.st_size > 0) {
      bytes_ = static_cast<size_t>(about.st_size);
      address_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      if (address_ == MAP_FAILED) *error = std::strerror(errno);
    }
    if (file >= 0) close(file);
  }
  ~MappedFile() {
    if (address_ != MAP_FAILED) munmap(address_, bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes content() const {
    if (address_ == MAP_FAILED) return {};
    return {static_cast<const std::byte*>(address_), bytes_};
  }

 private:
  void* address_ = MAP_FAILED;
  size_t bytes_ = 0;
};

}  // namespace

std::optional<std::string> ParseNcclExports(std::span<const std::byte> content,
                                            NcclExports* exports) {
  *exports = {};
  const std::vector<Section> sections = SectionsIn(content);
  if (sections.empty()) return "it is not a 64-bit library for this system, or it is truncated";
  size_t bound = 0;
  for (const Section& section : sections) {
    if (section.type == SHT_DYNSYM && section.link < sections.size()) {
      bound += AddNames(section.bytes, sections[section.link].bytes, &exports->names);
    }
    if (section.name == ".rodata") exports->version = VersionIn(TextOf(section.bytes));
  }
  std::vector<std::string>& names = exports->names;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (!std::binary_search(names.begin(), names.end(), "ncclGetVersion")) {
    return NotNccl(bound);
  }
  return std::nullopt;
}

std::optional<std::string> ReadNcclExports(const char* path, NcclExports* exports) {
  std::string error;
  const MappedFile file(path, &error);
  if (!error.empty()) return error;
  return ParseNcclExports(file.content(), exports);
}

std::vector<std::string> MissingInDropIn(const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [](const std::string& name) {
                 return std::find(std::begin(kDropInNames), std::end(kDropInNames), name) ==
                        std::end(kDropInNames);
               });
  return missing;
}

}  // namespace onebit::preload
