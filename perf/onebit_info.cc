// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Prints what the library is, which transports and CUDA devices it has, and every setting with
// value and source; or which functions of an NCCL the drop-in lacks.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "onebit/onebit.h"
#include "perf/common/comm_handles.h"
#include "perf/common/cuda_device.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/host_facts.h"
#include "perf/common/library_setting.h"
#include "perf/common/run_facts.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "plugins/nccl_preload/nccl_exports.h"

namespace onebit::perf {
namespace {

// All rows of the settings table; a bad environment is an error that names the variable.
std::vector<onebitSetting_t> Settings() {
  std::vector<onebitSetting_t> settings;
  for (int index = 0;; ++index) {
    onebitSetting_t setting{};
    const onebitResult_t result = onebitGetSetting(index, &setting);
    if (result == onebitInvalidArgument) return settings;  // past the last row
    Check(result, "onebitGetSetting");
    settings.push_back(setting);
  }
}

// Lists all transports, including those that the tools have no use for.
std::vector<std::string> Transports() {
  std::vector<std::string> names;
  for (int index = 0;; ++index) {
    const char* name = nullptr;
    const onebitResult_t result = onebitGetTransport(index, &name);
    if (result == onebitInvalidArgument) return names;  // past the last one
    Check(result, "onebitGetTransport");
    names.emplace_back(name);
  }
}

// Makes an empty text visible.
const char* Shown(const char* text) { return *text == '\0' ? "(empty)" : text; }

// Names transports whose settings cannot be queried: which plugin of a transport is used may be
// known only under its launcher.
std::vector<std::string> TransportsWithoutSettings(const std::vector<onebitSetting_t>& settings) {
  std::vector<std::string> names;
  for (const std::string& name : Transports()) {
    std::string prefix = "ONEBIT_";
    for (const char c : name)
      prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    prefix += '_';
    const bool has_one = std::any_of(settings.begin(), settings.end(), [&](const auto& setting) {
      return std::string_view(setting.name).starts_with(prefix);
    });
    if (!has_one) names.push_back(name);
  }
  return names;
}

struct CudaReport {
  std::string problem;  // why the library cannot use the devices; empty: it can
  std::vector<CudaDeviceFacts> devices;
};

CudaReport LookForCuda() {
  CudaReport report;
  try {
    for (int number = 0; number < CudaDeviceCount(); ++number) {
      report.devices.push_back(FactsOfCudaDevice(number));
    }
    // Creating a communicator with a device makes the library load its CUDA plugin.
    const int first = 0;
    UseCudaDevice(first);
    onebitComm_t comm = nullptr;
    Check(onebitCommInitAll(&comm, 1, &first), "libonebit-cuda.so");
    const CommHandle owned(comm);
  } catch (const ToolError& error) {
    report.problem = error.what();
  }
  return report;
}

void PrintCuda(const CudaReport& cuda) {
  for (size_t number = 0; number < cuda.devices.size(); ++number) {
    const CudaDeviceFacts& device = cuda.devices[number];
    fmt::print("CUDA device {}: {}, compute capability {}.{}, {} MiB\n", number, device.name,
               device.compute_major, device.compute_minor, device.memory_bytes >> 20);
  }
  fmt::print("CUDA devices can be used: {}\n",
             cuda.problem.empty() ? "yes" : "no: " + cuda.problem);
}

nlohmann::ordered_json CudaJson(const CudaReport& cuda) {
  using Json = nlohmann::ordered_json;
  Json devices = Json::array();
  for (const CudaDeviceFacts& device : cuda.devices) {
    devices.push_back(
        {{"name", device.name},
         {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
         {"memory_bytes", device.memory_bytes}});
  }
  return {{"can_be_used", cuda.problem.empty()},
          {"problem", cuda.problem},
          {"devices", std::move(devices)}};
}

// Tells where ranks of this process would be, and what says so.
struct HostReport {
  std::string name;
  std::string source;
};

HostReport FindHost() {
  const std::string word = SettingValue("ONEBIT_HOST");
  if (!word.empty()) return {word, "ONEBIT_HOST"};
  const std::string ranks = SettingValue("ONEBIT_HOST_RANKS");
  if (ranks != "0") return {ranks + " successive ranks", "ONEBIT_HOST_RANKS"};
  return {MachineId(), "machine"};
}

void PrintText(const std::string& version, const std::vector<onebitSetting_t>& settings) {
  fmt::print("onebit {}\ntransports: {}\n", version, fmt::join(Transports(), ", "));
  const HostReport host = FindHost();
  fmt::print("host of this process: {} ({})\n", host.name, host.source);
  PrintCuda(LookForCuda());
  fmt::print("\nsettings (environment variables)\n");
  for (const onebitSetting_t& setting : settings) {
    fmt::print("  {}={}\n      {}\n      {}; default {}; value from {}\n", setting.name,
               setting.value, setting.help, setting.type, Shown(setting.defaultValue),
               setting.source);
  }
  for (const std::string& name : TransportsWithoutSettings(settings)) {
    fmt::print("  settings of transport {} are shown under its launcher: mpirun -n 1 onebit_info\n",
               name);
  }
}

void PrintJson(const std::string& version, const std::vector<onebitSetting_t>& settings) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const onebitSetting_t& setting : settings) {
    rows.push_back({{"name", setting.name},
                    {"type", setting.type},
                    {"default", setting.defaultValue},
                    {"help", setting.help},
                    {"value", setting.value},
                    {"source", setting.source}});
  }
  const HostReport host = FindHost();
  const Json report = {{"version", version},
                       {"transports", Transports()},
                       {"host", {{"name", host.name}, {"source", host.source}}},
                       {"cuda", CudaJson(LookForCuda())},
                       {"settings", std::move(rows)}};
  fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
}

// Compares a file of NCCL with the drop-in, without running code of either.
int ReportNccl(const std::string& path, bool is_json) {
  preload::NcclExports exports;
  if (const auto error = preload::ReadNcclExports(path.c_str(), &exports)) {
    throw ToolError(fmt::format("{}: {}", path, *error));
  }
  const std::vector<std::string> missing = preload::MissingInDropIn(exports.names);
  if (is_json) {
    using Json = nlohmann::ordered_json;
    const Json report = {{"path", path},
                         {"version", exports.version},
                         {"functions", exports.names.size()},
                         {"missing", missing}};
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
    return kExitOk;
  }
  fmt::print("{}: NCCL {}\n", path, exports.version.empty() ? "(no version)" : exports.version);
  if (missing.empty()) {
    fmt::print("all {} functions are in the drop-in\n", exports.names.size());
  } else {
    fmt::print("{} of {} functions are not in the drop-in:\n  {}\n", missing.size(),
               exports.names.size(), fmt::join(missing, "\n  "));
  }
  return kExitOk;
}

int Run(int argc, const char* const* argv) {
  CLI::App app("Print version, transports, CUDA devices and settings of the onebit library.",
               "onebit_info");
  bool is_json = false;
  std::string nccl;
  app.add_flag("--json", is_json, "print JSON");
  CLI::Option* const compared =
      app.add_option("--nccl", nccl,
                     "compare this libnccl.so.2 with our drop-in instead, without running it "
                     "(docs/preload.md)")
          ->type_name("PATH");
  if (!ParseCommandLine(app, argc, argv)) return kExitOk;
  if (compared->count() > 0) return ReportNccl(nccl, is_json);
  const std::string version = LibraryVersionText();
  const std::vector<onebitSetting_t> settings = Settings();
  is_json ? PrintJson(version, settings) : PrintText(version, settings);
  return kExitOk;
}

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  return RunTool("onebit_info", true, [&] { return Run(argc, argv); });
}
