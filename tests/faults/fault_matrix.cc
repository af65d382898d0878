// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs every fault in every kind of call at every place, and prints a line of JSON for each:
// fault_matrix TRANSPORT [PART_OF_CASE]. Exits with 1 if anything was not as expected.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/format.h"
#include "tests/faults/process_fault_run.h"
#include "tests/support/faulty_transport.h"

namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + '"';
}

std::string Member(const char* name, const std::string& text) {
  return onebit::Format("\"{}\": {}, ", name, Quoted(text));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace onebit::testing;  // the program is a front end to it
  if (argc < 2) {
    std::fprintf(stderr, "usage: fault_matrix TRANSPORT [PART_OF_CASE]\n");
    return 2;
  }
  setenv("ONEBIT_PLUGIN_PATH", PLUGIN_PATH, 1);
  onebit::testing::RegisterFaultyTransports();
  setenv("ONEBIT_DEBUG", "NONE", 0);  // errors are checked, so the log is not needed
  const std::string part = argc > 2 ? argv[2] : "";
  int failures = 0;
  for (const FaultCase& one : AllCases(argv[1])) {
    if (one.Text().find(part) == std::string::npos) continue;
    const FaultReport report = RunFaultCase(one);
    std::string line = "{";
    line += Member("fault", std::string(NameOf(one.kind)));
    line += Member("call", one.call.name);
    line += Member("size", std::string(NameOf(one.size)));
    line += Member("place", one.place.name);
    line += Member("outcome", report.outcome);
    line += Member("named", report.named);
    line += Member("residuals", report.residuals);
    line += Member("recovered", report.recovered);
    line += "\"detection_ms\": ";
    line += report.detection_ms ? onebit::Format("{:.2f}", *report.detection_ms) : "null";
    line += ", \"violations\": [";
    for (size_t i = 0; i < report.violations.size(); ++i) {
      line += (i == 0 ? "" : ", ") + Quoted(report.violations[i]);
    }
    std::puts((line + "]}").c_str());
    std::fflush(stdout);
    if (!report.violations.empty()) ++failures;
  }
  return failures == 0 ? 0 : 1;
}
