// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/tool_main.h"

#include <errno.h>

#include <exception>
#include <new>

#include "perf/common/standard_output.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

std::string_view ToolName() { return program_invocation_short_name; }

int RunTool(std::string_view tool, bool is_speaker, const std::function<int()>& body) {
  SayIfOutputCloses(tool);
  const auto say = [tool](std::string_view text) { fmt::print(stderr, "{}: {}\n", tool, text); };
  try {
    return body();
  } catch (const UsageError& error) {
    if (is_speaker) {
      say(fmt::format("{}\nRun {} --help for the options.", error.what(), tool));
    }
    return kExitUsage;
  } catch (const StartError& error) {
    say(error.what());
    return error.status();
  } catch (const ToolError& error) {
    if (is_speaker || !error.is_consequence()) say(error.what());
  } catch (const std::bad_alloc&) {
    say("out of memory");
  } catch (const std::exception& error) {
    say(error.what());
  }
  return kExitFailed;
}

}  // namespace onebit::perf
