// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The library's own rows, and the parser of all rows.
#include "base/settings.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>

namespace onebit {
namespace {

// The row whose value is never shown.
constexpr std::string_view kSecret = "ONEBIT_SECRET";

static_assert(std::is_standard_layout_v<Settings>, "offsetof must be defined");

constexpr Setting kOwnSettings[] = {
    {.name = "ONEBIT_DEBUG",
     .kind = SettingKind::kChoice,
     .values = "NONE|VERSION|WARN|INFO|TRACE",  // in the order of LogLevel
     .default_value = "WARN",
     .help = "Lines up to this level are logged.",
     .offset = offsetof(Settings, debug)},
    {.name = "ONEBIT_DEBUG_FILE",
     .kind = SettingKind::kPath,
     .values = "path; %h is the host, %p the process id",
     .default_value = "",
     .help = "Where the log goes instead of stderr; a file that cannot be opened is an error.",
     .offset = offsetof(Settings, debug_file)},
    {.name = "ONEBIT_TRACE",
     .kind = SettingKind::kPath,
     .values = "path; %r is the rank, %h the host, %p the process id",
     .default_value = "",
     .help = "Where the process writes a trace of its calls (compress, exchange, reduce, decode, "
             "wait), as JSON for Perfetto; unset: nothing is recorded.",
     .offset = offsetof(Settings, trace)},
    {.name = "ONEBIT_TRANSPORT",
     .kind = SettingKind::kName,
     .values = "the name of a transport, in lower case",
     .default_value = "socket",
     .help = "The transport between ranks that are processes; equal on all ranks.",
     .offset = offsetof(Settings, transport)},
    {.name = "ONEBIT_RENDEZVOUS",
     .kind = SettingKind::kText,
     .values = "host:port, or path of a file with a slash in it",
     .default_value = "",
     .help = "Where the ranks of onebitCommInitEnv meet; unset: what the launcher says.",
     .offset = offsetof(Settings, rendezvous)},
    {.name = "ONEBIT_JOB",
     .kind = SettingKind::kText,
     .values = "any text",
     .default_value = "",
     .help = "A word that distinguishes this job from others with the same rendezvous; equal on "
             "all ranks; unset: what the launcher says.",
     .offset = offsetof(Settings, job)},
    {.name = "ONEBIT_SECRET",
     .kind = SettingKind::kText,
     .values = "text of at least 16 characters",
     .default_value = "",
     .help = "The secret a process needs to join ranks that meet at a host and port; equal on all "
             "ranks.",
     .offset = offsetof(Settings, secret)},
    {.name = "ONEBIT_SECRET_FILE",
     .kind = SettingKind::kPath,
     .values = "path",
     .default_value = "",
     .help = "A file that holds the secret and that only its owner may read.",
     .offset = offsetof(Settings, secret_file)},
    {.name = "ONEBIT_SOCKET_IFNAME",
     .kind = SettingKind::kText,
     .values = "prefixes of interface names, e.g. eth,ib; =eth0 exact; ^docker not",
     .default_value = "",
     .help = "Network interfaces to use; unset: all but loopback and bridges of containers, where "
             "there are others.",
     .offset = offsetof(Settings, socket_interfaces)},
    {.name = "ONEBIT_HOST",
     .kind = SettingKind::kText,
     .values = "any text of at most 200 bytes",
     .default_value = "",
     .help =
         "A word that the ranks of one host, and no others, have in common; set on all ranks or "
         "on none; unset: ranks on one machine share a host.",
     .offset = offsetof(Settings, host)},
    {.name = "ONEBIT_HOST_RANKS",
     .kind = SettingKind::kInteger,
     .values = "ranks",
     .maximum = 65'536,
     .default_value = "0",
     .help = "This many successive ranks are one host, whatever machine they are on, unless "
             "ONEBIT_HOST is set; 0: not set; equal on all ranks.",
     .offset = offsetof(Settings, host_ranks)},
    {.name = "ONEBIT_CONNECT_TIMEOUT_MS",
     .kind = SettingKind::kInteger,
     .values = "milliseconds",
     .minimum = 1,
     .maximum = 86'400'000,
     .default_value = "60000",
     .help = "All ranks must have joined and connected within this time.",
     .offset = offsetof(Settings, connect_timeout_ms)},
    {.name = "ONEBIT_HEARTBEAT_MS",
     .kind = SettingKind::kInteger,
     .values = "milliseconds",
     .minimum = 1,
     .maximum = 3'600'000,
     .default_value = "1000",
     .help = "Time between a process's signs of life; equal on all ranks.",
     .offset = offsetof(Settings, heartbeat_ms)},
    {.name = "ONEBIT_LOSS_TIMEOUT_MS",
     .kind = SettingKind::kInteger,
     .values = "milliseconds",
     .minimum = 1,
     .maximum = 86'400'000,
     .default_value = "15000",
     .help = "A process that is silent for this long, or for twice this while packets to it get "
             "lost, counts as lost; more than ONEBIT_HEARTBEAT_MS; equal on all ranks.",
     .offset = offsetof(Settings, loss_timeout_ms)},
    {.name = "ONEBIT_COLLECTIVE_TIMEOUT_MS",
     .kind = SettingKind::kInteger,
     .values = "milliseconds",
     .minimum = 1,
     .maximum = 86'400'000,
     .default_value = "600000",
     .help = "A collective that makes no progress for this long fails.",
     .offset = offsetof(Settings, collective_timeout_ms)},
    {.name = "ONEBIT_SHRINK_GRACE_MS",
     .kind = SettingKind::kInteger,
     .values = "milliseconds",
     .minimum = 1,
     .maximum = 86'400'000,
     .default_value = "5000",
     .help = "onebitCommShrink without a list waits this long for ranks that do not answer.",
     .offset = offsetof(Settings, shrink_grace_ms)},
    {.name = "ONEBIT_QUORUM",
     .kind = SettingKind::kBoolean,
     .values = "",
     .default_value = "0",
     .help = "Who may go on after onebitCommShrink without a list. 0: any group; 1: more than half "
             "of the ranks, or half with the lowest; equal on all ranks.",
     .offset = offsetof(Settings, quorum)},
    {.name = "ONEBIT_COMPUTE_THREADS",
     .kind = SettingKind::kAutoOrInteger,
     .values = "threads",
     .maximum = 64,
     .default_value = "auto",
     .help = "Threads of a communicator that compute alongside the caller of a collective; auto: "
             "up to 3, where the ranks of a host leave it cores.",
     .offset = offsetof(Settings, compute_threads)},
    {.name = "ONEBIT_ONE_EXCHANGE_ELEMENTS",
     .kind = SettingKind::kAutoOrInteger,
     .values = "elements",
     .maximum = 1'048'576,
     .default_value = "auto",
     .help = "Compressed tensors up to this size use one exchange instead of two; auto: 8192 for "
             "2 to 4 ranks, 2340 for 8; equal on all ranks.",
     .offset = offsetof(Settings, one_exchange_elements)},
    {.name = "ONEBIT_TWO_LEVEL_BYTES",
     .kind = SettingKind::kAutoOrInteger,
     .values = "bytes",
     .maximum = 1'099'511'627'776,
     .default_value = "auto",
     .help = "Where hosts have several ranks, calls whose larger buffer has this size pass inside "
             "hosts and then between them, unless the compressor's configuration says otherwise; "
             "auto: 65536; equal on all ranks.",
     .offset = offsetof(Settings, two_level_bytes)},
    {.name = "ONEBIT_GROUP_ELEMENTS",
     .kind = SettingKind::kAutoOrInteger,
     .values = "elements",
     .maximum = 1'073'741'824,
     .default_value = "auto",
     .help = "Calls of a group up to this size travel together, up to four times as much in a "
             "message; 0: none does; auto: 262144, over nccl 1048576; equal on all ranks.",
     .offset = offsetof(Settings, group_elements)},
    {.name = "ONEBIT_PLUGIN_PATH",
     .kind = SettingKind::kPath,
     .values = "folders, with colons between them",
     .default_value = "",
     .help = "Where transports are looked for before the library's own folder.",
     .offset = offsetof(Settings, plugin_path)},
    {.name = "ONEBIT_LIBRARY",
     .kind = SettingKind::kPath,
     .values = "path",
     .default_value = "",
     .help = "The library that the Python package loads in place of its own; read by the package.",
     .offset = offsetof(Settings, library)},
    {.name = "ONEBIT_TORCH_DDP",
     .kind = SettingKind::kText,
     .values = "a codec, or a codec and options of onebit.torch.State: fp4,dense_iterations=10",
     .default_value = "",
     .help = "PyTorch's DistributedDataParallel averages with this codec, in unmodified trainers; "
             "unset or 0: they average as usual; equal on all ranks; read by the Python package.",
     .offset = offsetof(Settings, torch_ddp)},
    {.name = "ONEBIT_SEGMENT_ELEMENTS",
     .kind = SettingKind::kInteger,
     .values = "elements",
     .minimum = 64,
     .maximum = 1'073'741'824,
     .default_value = "262144",
     .help = "Chunks travel in segments of about this size, dense ones in quarters of it, at most "
             "64 a chunk; equal on all ranks.",
     .offset = offsetof(Settings, segment_elements)},
};

std::vector<std::string_view> ChoicesOf(const Setting& setting) {
  std::vector<std::string_view> choices;
  for (std::string_view rest(setting.values);;) {
    const size_t end = rest.find('|');
    choices.push_back(rest.substr(0, end));
    if (end == rest.npos) return choices;
    rest.remove_prefix(end + 1);
  }
}

// A value in the form in which its receiver gets it.
union Value {
  uint64_t integer;
  const char* text;
};
static_assert(sizeof(Value) == sizeof(const char*), "a row's text fills its member");

std::optional<Value> ParseInteger(const Setting& setting, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < setting.minimum || value > setting.maximum) return std::nullopt;
  return Value{.integer = value};
}

std::optional<Value> ParseChoice(std::span<const std::string_view> choices, std::string_view text) {
  const auto found = std::ranges::find(choices, text);
  if (found == choices.end()) return std::nullopt;
  return Value{.integer = static_cast<uint64_t>(found - choices.begin())};
}

// Returns no value if `text` is not one of this setting's.
std::optional<Value> Parse(const Setting& setting, const char* text) {
  constexpr std::string_view kBooleans[] = {"0", "1"};
  const auto text_of = [&](std::string_view characters) -> std::optional<Value> {
    if (*text == '\0' && *setting.default_value != '\0') return std::nullopt;
    if (std::string_view(text).find_first_not_of(characters) != std::string_view::npos) {
      return std::nullopt;
    }
    return Value{.text = text};
  };
  switch (setting.kind) {
    case SettingKind::kInteger:
      return ParseInteger(setting, text);
    case SettingKind::kAutoOrInteger:
      if (std::string_view(text) == "auto") return Value{.integer = kAuto};
      return ParseInteger(setting, text);
    case SettingKind::kBoolean:
      return ParseChoice(kBooleans, text);
    case SettingKind::kChoice:
      return ParseChoice(ChoicesOf(setting), text);
    case SettingKind::kName:
      return text_of("abcdefghijklmnopqrstuvwxyz0123456789");
    case SettingKind::kList:
      return text_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:,^@/");
    case SettingKind::kText:
    case SettingKind::kPath:
      return Value{.text = text};
  }
  return std::nullopt;
}

// The values in words.
std::string TypeOf(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kInteger:
      return Format("{}, {} to {}", setting.values, setting.minimum, setting.maximum);
    case SettingKind::kAutoOrInteger:
      return Format("auto, or {}, {} to {}", setting.values, setting.minimum, setting.maximum);
    case SettingKind::kBoolean:
      return "0 or 1";
    case SettingKind::kChoice: {
      const auto choices = ChoicesOf(setting);
      std::string text(choices.front());
      for (size_t i = 1; i < choices.size(); ++i) {
        AppendFormat(&text, "{}{}", i + 1 < choices.size() ? ", " : " or ", choices[i]);
      }
      return text;
    }
    case SettingKind::kName:
    case SettingKind::kList:
    case SettingKind::kText:
    case SettingKind::kPath:
      break;
  }
  return setting.values;
}

// The value of a variable, as a C string inside the environment; null if it is not set.
const char* Find(std::span<const char* const> environment, std::string_view name) {
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return entry + name.size() + 1;
    }
  }
  return nullptr;
}

bool IsIgnored(const Setting& setting) {
  return setting.kind == SettingKind::kPath && IsSecureExecution();
}

// The text that an environment gives a row; null if there is none.
const char* TextOf(std::span<const char* const> environment, const Setting& setting) {
  return IsIgnored(setting) ? nullptr : Find(environment, setting.name);
}

Result<Value> Read(std::span<const char* const> environment, const Setting& setting) {
  const char* text = TextOf(environment, setting);
  if (text == nullptr) text = setting.default_value;
  if (const auto value = Parse(setting, text)) return *value;
  return Error(Code::kInvalidUsage, "environment variable {}: \"{}\" is not {}", setting.name, text,
               TypeOf(setting));
}

// Checks a row and appends it with the value it has in `environment`.
Status Append(const Setting& setting, std::span<const char* const> environment,
              SettingsTable* table) {
  const bool is_known = std::ranges::any_of(table->rows, [&](const SettingRow& row) {
    return std::string_view(row.name) == setting.name;
  });
  if (is_known) {
    return Error(Code::kInvalidUsage, "the setting {} is declared twice", setting.name);
  }
  ONEBIT_TRY(Read(environment, setting).status());
  if (IsIgnored(setting) && Find(environment, setting.name) != nullptr) {
    // Without its secret the job would admit anybody.
    if (std::string_view(setting.name) == "ONEBIT_SECRET_FILE") {
      return Error(Code::kInvalidUsage,
                   "environment variable ONEBIT_SECRET_FILE: this program has more rights than its "
                   "caller, so it reads no file for it: set ONEBIT_SECRET");
    }
    table->warnings.push_back(
        Format("environment variable {} is ignored: it names files, and this program has more "
               "rights than its caller",
               setting.name));
  }
  const char* text = TextOf(environment, setting);
  table->rows.push_back({.name = setting.name,
                         .type = TypeOf(setting),
                         .default_value = setting.default_value,
                         .help = setting.help,
                         .value = text == nullptr           ? setting.default_value
                                  : setting.name == kSecret ? "(not shown)"
                                                            : text,
                         .is_set = text != nullptr});
  return OkStatus();
}

// Fewest insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool is_equal = a[i - 1] == b[j - 1];
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (is_equal ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

constexpr std::string_view kPrefix = "ONEBIT_";

// The known name that `unknown` is most likely a misspelling of; null if none is near.
const char* NearestName(std::string_view unknown, std::span<const SettingRow> rows) {
  std::string capitals(unknown);
  for (char& c : capitals) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  // Three errors are a plausible slip, but in a short name they would change most of it.
  size_t limit = std::min<size_t>(3, (unknown.size() - kPrefix.size()) / 3);
  const char* nearest = nullptr;
  for (const SettingRow& row : rows) {
    const size_t length = std::strlen(row.name);
    if (capitals.size() > length + limit) continue;  // also bounds the work on a very long name
    const size_t distance = EditDistance(capitals, row.name);
    if (distance > limit || (nearest != nullptr && distance == limit)) continue;
    nearest = row.name;
    limit = distance;
  }
  return nearest;
}

}  // namespace

Result<SettingsTable> ReadSettings(std::span<const char* const> environment,
                                   std::span<const Setting> declared) {
  SettingsTable table;
  for (const Setting& setting : kOwnSettings) ONEBIT_TRY(Append(setting, environment, &table));
  for (const Setting& setting : declared) ONEBIT_TRY(Append(setting, environment, &table));
  ONEBIT_TRY(ReadValues(environment, kOwnSettings, &table.settings));
  for (const std::string& name : UnknownVariables(environment, declared)) {
    std::string text = Format("environment variable {} is unknown and ignored", name);
    const char* nearest = NearestName(name, table.rows);
    if (nearest != nullptr) AppendFormat(&text, "; did you mean {}?", nearest);
    table.warnings.push_back(std::move(text));
  }
  return table;
}

Status ReadValues(std::span<const char* const> environment, std::span<const Setting> settings,
                  void* values) {
  for (const Setting& setting : settings) {
    ONEBIT_ASSIGN_OR_RETURN(const Value value, Read(environment, setting));
    std::memcpy(static_cast<std::byte*>(values) + setting.offset, &value, sizeof value);
  }
  return OkStatus();
}

bool SettingsTable::IsSet(std::string_view name) const {
  return std::ranges::any_of(
      rows, [name](const SettingRow& row) { return name == row.name && row.is_set; });
}

std::vector<std::string> UnknownVariables(std::span<const char* const> environment,
                                          std::span<const Setting> declared) {
  std::vector<std::string> unknown;
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (!text.starts_with(kPrefix)) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const auto has_name = [name](const Setting& setting) { return name == setting.name; };
    if (std::ranges::none_of(kOwnSettings, has_name) && std::ranges::none_of(declared, has_name)) {
      unknown.emplace_back(name);
    }
  }
  return unknown;
}

const char* PluginPathOf(std::span<const char* const> environment) {
  const char* text = IsSecureExecution() ? nullptr : Find(environment, "ONEBIT_PLUGIN_PATH");
  return text == nullptr ? "" : text;
}

bool IsSecureExecution() { return getauxval(AT_SECURE) != 0; }

std::span<const char* const> ProcessEnvironment() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  return {environ, count};
}

}  // namespace onebit
