// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Standard output, whose reader may leave before the end, as `head` does.
#pragma once

#include <string_view>

namespace onebit::perf {

// From now on SIGPIPE ends the program, as it does without this, but not without a line on stderr
// if it was standard output that nobody reads any more. Leaves a SIGPIPE that is ignored alone.
void SayIfOutputCloses(std::string_view tool);

// From now on a closed standard output is an error of Print instead, so that a report can be
// finished.
void IgnoreClosedOutput();

// Writes at once. Throws ToolError.
void Print(std::string_view text);

}  // namespace onebit::perf
