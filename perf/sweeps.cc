// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All sweeps in one program: it is the one whose name it is started by. The wheel has it in place
// of eight programs that consist of the same code.
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"

// The main functions of the sweeps' files, which are compiled under these names.
int all_gather_perf_main(int argc, char** argv);
int all_reduce_perf_main(int argc, char** argv);
int alltoall_perf_main(int argc, char** argv);
int alltoallv_perf_main(int argc, char** argv);
int broadcast_perf_main(int argc, char** argv);
int group_perf_main(int argc, char** argv);
int reduce_scatter_perf_main(int argc, char** argv);
int sendrecv_perf_main(int argc, char** argv);

namespace onebit::perf {
namespace {

struct Sweep {
  std::string_view name;
  int (*run)(int argc, char** argv);
};

constexpr Sweep kSweeps[] = {
    {"all_gather_perf", all_gather_perf_main},
    {"all_reduce_perf", all_reduce_perf_main},
    {"alltoall_perf", alltoall_perf_main},
    {"alltoallv_perf", alltoallv_perf_main},
    {"broadcast_perf", broadcast_perf_main},
    {"group_perf", group_perf_main},
    {"reduce_scatter_perf", reduce_scatter_perf_main},
    {"sendrecv_perf", sendrecv_perf_main},
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  constexpr std::string_view kPrefix = "onebit_";
  std::string_view name = ToolName();
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const Sweep& sweep : kSweeps) {
    if (sweep.name == name) return sweep.run(argc, argv);
  }
  fmt::print(stderr, "{}: start this program under the name of a sweep, such as {}\n", ToolName(),
             kSweeps[1].name);
  return kExitUsage;
}
