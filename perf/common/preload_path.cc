// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/preload_path.h"

#include <dlfcn.h>

#include <filesystem>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr char kPreloadFile[] = "libonebit-nccl-preload.so";

}  // namespace

std::string PreloadPath() {
  Dl_info library{};
  void* const function = dlsym(RTLD_DEFAULT, "onebitGetVersion");
  if (function == nullptr || dladdr(function, &library) == 0) {
    throw ToolError(fmt::format("--preload: cannot find out where libonebit is, and so where {} is",
                                kPreloadFile));
  }
  const std::filesystem::path folder =
      std::filesystem::absolute(library.dli_fname).lexically_normal().parent_path();
  const std::string path = folder / kPreloadFile;
  if (!std::filesystem::exists(path)) {
    throw ToolError(
        fmt::format("--preload: there is no {}: install it in the folder of libonebit", path));
  }
  // They separate the libraries in LD_PRELOAD.
  if (path.find_first_of(" :") != path.npos) {
    throw ToolError(fmt::format(
        "--preload: the loader cannot read the path {}: it has a space or a colon", path));
  }
  return path;
}

}  // namespace onebit::perf
