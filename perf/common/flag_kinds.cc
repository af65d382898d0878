// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/flag_kinds.h"

#include <cmath>
#include <cstdio>
#include <optional>

#include "perf/common/message_sizes.h"
#include "perf/common/rank_launcher.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

bool ParseCommandLine(CLI::App& app, int argc, const char* const* argv, bool is_speaker) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (is_speaker) std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return true;
}

CLI::Option* AddParsed(CLI::App& app, const std::string& flags, const std::string& help,
                       const std::string& type_name, const std::string& default_text,
                       std::function<std::string(const std::string&)> parse) {
  auto* option = app.add_option_function<std::string>(
      flags,
      [flags, parse = std::move(parse)](const std::string& text) {
        const std::string problem = parse(text);
        if (!problem.empty()) throw CLI::ValidationError(flags, problem);
      },
      help);
  return option->type_name(type_name)->default_str(default_text);
}

CLI::Option* AddCount(CLI::App& app, const std::string& flags, const std::string& help,
                      int at_least, int at_most, int* count) {
  return app.add_option(flags, *count, help)
      ->check(CLI::Range(at_least, at_most).description(""))
      ->type_name("N")
      ->capture_default_str();
}

CLI::Option* AddOnly(CLI::App& app, const std::string& flags, const std::string& help,
                     const std::string& value, const std::string& instead) {
  return AddParsed(app, flags, help, value, value, [value, instead](const std::string& text) {
    return text == value ? std::string() : fmt::format("{}: {}", text, instead);
  });
}

void AddSize(CLI::App& app, const std::string& flags, const std::string& help,
             const std::string& default_text, size_t* size) {
  AddParsed(app, flags, help, "SIZE", default_text, [size](const std::string& text) {
    const std::optional<size_t> parsed = ParseSize(text);
    if (!parsed)
      return fmt::format("'{}' is not a size; write bytes, or a number with K, M or G", text);
    *size = *parsed;
    return std::string();
  });
}

CLI::Option* AddBlock(CLI::App& app, int32_t* block, size_t unit) {
  return AddParsed(
      app, "--block", "elements per scale, or 'tensor' for one per tensor", "N|tensor",
      fmt::format("{}", *block), [block, unit](const std::string& text) -> std::string {
        const std::optional<size_t> size = text == "tensor" ? ONEBIT_BLOCK_TENSOR : ParseSize(text);
        const bool is_count = size && *size != 0 && *size % unit == 0 && *size <= INT32_MAX;
        if (text != "tensor" && !is_count) {
          return fmt::format("'{}' is neither a positive multiple of {} nor 'tensor'", text, unit);
        }
        *block = static_cast<int32_t>(*size);
        return "";
      });
}

CLI::Validator Number(const std::string& what, std::function<bool(double)> fits) {
  return CLI::Validator(
      [what, fits = std::move(fits)](std::string& text) -> std::string {
        double number = 0;
        const bool is_fine =
            CLI::detail::lexical_cast(text, number) && std::isfinite(number) && fits(number);
        return is_fine ? "" : fmt::format("{} is not {}", text, what);
      },
      "");
}

void AddRankSource(CLI::App& app, RankSource* source, const std::string& transport_note) {
  app.add_option("--procs", source->procs, "ranks, each a process started on this host")
      ->check(CLI::Range(1, kMaxProcesses).description(""))
      ->type_name("N");
  app.add_option("--transport", source->transport,
                 "transport that carries the bytes: local for threads, socket (the default), ucx "
                 "or mpi for processes" +
                     transport_note)
      ->type_name("NAME");
}

CLI::Validator NoSign() {
  return CLI::Validator(
      [](std::string& text) { return text.starts_with('-') ? text + " is negative" : ""; }, "");
}

}  // namespace onebit::perf
