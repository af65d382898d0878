// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table of variants, and the rules that choose one.
#include "transport/variants.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "transport/loader.h"

namespace onebit {
namespace {

constexpr std::string_view kPrefix = "libonebit-transport-";
constexpr std::string_view kSuffix = ".so";

struct Variant {
  std::string_view transport;
  std::string_view name;
  const char* library;                   // decides if it is loaded
  std::array<const char*, 3> variables;  // set by its launcher
  const char* launcher;                  // for error texts
};

constexpr std::array kVariants = {
    Variant{"mpi",
            "openmpi",
            "libmpi.so.40",
            {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"},
            "mpirun of Open MPI"},
    Variant{"mpi",
            "mpich",
            "libmpich.so.12",
            {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
            "mpiexec of MPICH"},
};

std::string FileOf(std::string_view stem) { return Format("{}{}{}", kPrefix, stem, kSuffix); }

std::string FileOf(const Variant& variant) {
  return FileOf(Format("{}-{}", variant.transport, variant.name));
}

bool IsLoaded(const Variant& variant) {
  void* const handle = dlopen(variant.library, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

bool IsLaunched(const Variant& variant) {
  return std::any_of(variant.variables.begin(), variant.variables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

// The only variant of the transport with this sign; null if none or several have it.
template <typename Sign>
const Variant* TheOneWith(std::string_view transport, Sign has_sign) {
  const Variant* found = nullptr;
  for (const Variant& variant : kVariants) {
    if (variant.transport != transport || !has_sign(variant)) continue;
    if (found != nullptr) return nullptr;
    found = &variant;
  }
  return found;
}

Status Undecided(std::string_view transport) {
  std::string files;
  std::string launchers;
  std::string found;  // variables of launchers that are set
  for (const Variant& variant : kVariants) {
    if (variant.transport != transport) continue;
    const bool is_first = files.empty();
    AppendFormat(&files, "{}{} (for {})", is_first ? "" : " or ", FileOf(variant), variant.library);
    AppendFormat(&launchers, "{}{}", is_first ? "" : " or ", variant.launcher);
    for (const char* name : variant.variables) {
      if (std::getenv(name) == nullptr) continue;
      AppendFormat(&found, "{}{} of {}", found.empty() ? "" : ", ", name, variant.launcher);
    }
  }
  if (!found.empty()) {
    return Error(
        Code::kInvalidUsage,
        "transport {} is {}, and the environment has variables of both launchers ({}): unset those "
        "of the one that did not start the program, or link it with one of these libraries",
        transport, files, found);
  }
  return Error(Code::kInvalidUsage,
               "transport {} is {}, and nothing says which one to use: start the program with {}, "
               "or link it with one of these libraries",
               transport, files, launchers);
}

}  // namespace

Result<std::string> PluginFile(std::string_view transport) {
  const auto is_of_transport = [&](const Variant& variant) {
    return variant.transport == transport;
  };
  if (std::none_of(kVariants.begin(), kVariants.end(), is_of_transport)) return FileOf(transport);
  const Variant* chosen = TheOneWith(transport, IsLoaded);
  if (chosen == nullptr) chosen = TheOneWith(transport, IsLaunched);
  if (chosen == nullptr) return Undecided(transport);
  return FileOf(*chosen);
}

std::optional<std::string> TransportOfFile(std::string_view file) {
  if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) return std::nullopt;
  for (const Variant& variant : kVariants) {
    if (file == FileOf(variant)) return std::string(variant.transport);
  }
  file.remove_prefix(kPrefix.size());
  file.remove_suffix(kSuffix.size());
  if (!IsTransportName(file)) return std::nullopt;
  return std::string(file);
}

}  // namespace onebit
