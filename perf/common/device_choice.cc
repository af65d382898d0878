// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/device_choice.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "perf/common/cuda_device.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

std::string ParseDevice(const std::string& text, DeviceChoice* device) {
  constexpr std::string_view kNumbered = "cuda:";
  *device = {.is_cuda = text != "cpu"};
  if (text == "cpu" || text == "cuda") return "";
  unsigned short number = 0;
  if (text.starts_with(kNumbered) &&
      ParseNumber(std::string_view(text).substr(kNumbered.size()), &number)) {
    device->number = number;
    return "";
  }
  return fmt::format("'{}' is not cpu, cuda or cuda:N", text);
}

}  // namespace

void AddDevice(CLI::App& app, DeviceChoice* device) {
  AddParsed(app, "--device",
            "where the buffers are: host memory, or CUDA device N; if N is not given, the rank "
            "modulo the number of devices",
            "cpu|cuda|cuda:N", "cpu",
            [device](const std::string& text) { return ParseDevice(text, device); });
}

int CudaDeviceOf(const DeviceChoice& choice, int rank) {
  const int count = CudaDeviceCount();
  const int number = choice.number.value_or(rank % count);
  if (number < count) return number;
  throw ToolError(fmt::format("--device cuda:{}: there {} {} CUDA device{}, counted from 0", number,
                              count == 1 ? "is" : "are", count, count == 1 ? "" : "s"));
}

}  // namespace onebit::perf
