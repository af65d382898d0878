// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes the file of a process. It is complete JSON after each write, so a viewer can open it
// whatever becomes of the process.
#include "base/trace_recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <concepts>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/format.h"
#include "base/log.h"
#include "base/path_pattern.h"
#include "base/without_file_size_signal.h"
#include "base/without_signals.h"

namespace onebit {
namespace {

// Time between two writes. The ring of a rank holds more events than it makes meanwhile.
constexpr auto kWriteInterval = std::chrono::milliseconds(20);

// Viewers load a file of this size within seconds. Events beyond it are dropped and counted.
constexpr uint64_t kMostFileBytes = uint64_t{256} << 20;

// Numbers in the file. Perfetto takes process 0 and thread 0 for those that idle. Processes are
// numbered by rank, so that files of several can become one, whatever their hosts.
constexpr int kFirstProcess = 1'000'000;
constexpr uint32_t kFirstThread = 1;

// Closes the list of events. The next write begins in its place.
constexpr std::string_view kEnd = "\n]\n";

std::string TextOfError(int error) { return std::generic_category().message(error); }

// Names may come from outside, with characters that JSON does not take.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return escaped;
}

int64_t NanosecondsOf(TraceClock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

// The start of every error about the value of the setting.
constexpr std::string_view kSetting = "environment variable ONEBIT_TRACE";

// Opens the file and empties it. Two processes would write over each other's events, so the first
// one holds a lock until its end. File systems without locks, and devices, are left unlocked.
Result<int> OpenAlone(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  struct stat about {};
  const bool is_open = descriptor >= 0 && fstat(descriptor, &about) == 0;
  const bool is_file = is_open && S_ISREG(about.st_mode);
  if (is_file && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor);
    return Error(Code::kInvalidUsage,
                 "{}: another process writes its trace to \"{}\": put %p, the process id, into the "
                 "name",
                 kSetting, path);
  }
  if (is_open && (!is_file || ftruncate(descriptor, 0) == 0)) return descriptor;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  return Error(Code::kInvalidUsage, "{}: cannot open the trace file \"{}\": {}", kSetting, path,
               TextOfError(error));
}

// Identifies the machine, all of whose processes have the same steady clock.
std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

void AppendPart(std::string* text, std::string_view part) { *text += part; }

void AppendPart(std::string* text, std::integral auto number) {
  char digits[24];
  text->append(digits, std::to_chars(digits, std::end(digits), number).ptr);
}

// Events are appended in this way because {fmt} takes several times as long, on a core that the
// traced program may need.
template <typename... Parts>
void Append(std::string* text, const Parts&... parts) {
  (AppendPart(text, parts), ...);
}

// The format counts in microseconds.
void AppendTime(std::string* text, std::string_view key, int64_t nanoseconds) {
  const char fraction[] = {static_cast<char>('0' + nanoseconds / 100 % 10),
                           static_cast<char>('0' + nanoseconds / 10 % 10),
                           static_cast<char>('0' + nanoseconds % 10)};
  Append(text, ",\"", key, "\":", nanoseconds / 1000, ".",
         std::string_view(fraction, sizeof(fraction)));
}

class ArgsWriter {
 public:
  explicit ArgsWriter(std::string* text) : text_(text) { *text_ += ",\"args\":{"; }
  ~ArgsWriter() { *text_ += "}}"; }
  ArgsWriter(const ArgsWriter&) = delete;
  ArgsWriter& operator=(const ArgsWriter&) = delete;

  void Number(std::string_view key, uint64_t value) {
    if (value == TraceEvent::kNone || value == TraceEvent::kNone32) return;
    Append(text_, Begin(), key, "\":", value);
  }
  void Text(std::string_view key, const char* value) {
    if (value != nullptr) Append(text_, Begin(), key, "\":\"", value, "\"");
  }
  void True(std::string_view key) { Append(text_, Begin(), key, "\":true"); }

 private:
  std::string_view Begin() { return std::exchange(is_first_, false) ? "\"" : ",\""; }

  std::string* text_;
  bool is_first_ = true;
};

void AppendArgs(std::string* text, const TraceEvent& event) {
  ArgsWriter args(text);
  args.Number("call", event.call);
  args.Text("collective", event.collective);
  args.Text("codec", event.codec);
  args.Text("mode", event.mode);
  args.Number("exchange", event.exchange);
  args.Number("peer", event.peer);
  args.Number("chunk", event.chunk);
  args.Number("segment", event.segment);
  args.Number("elements", event.elements);
  args.Number("bytes", event.bytes);
  if (event.has_failed) args.True("failed");
}

}  // namespace

// Never destroyed, because a process may end while its communicators live.
class TraceFile {
 public:
  static Result<TraceFile*> OfProcess(const std::string& pattern, const TraceSource& source);

  void Attach(TraceRecorder* recorder);
  void Detach(TraceRecorder* recorder) noexcept;
  // Writes what all recorders have. `last`: the one that ends, or null.
  void Flush(const TraceRecorder* last = nullptr) noexcept;
  // A copy that a fork made has neither the thread nor a lock that it could rely on.
  bool is_of_this_process() const { return owner_pid_ == getpid(); }

 private:
  TraceFile(std::string path, int descriptor, int rank)
      : path_(std::move(path)), descriptor_(descriptor), process_(rank) {}
  static Result<std::unique_ptr<TraceFile>> Create(const std::string& pattern,
                                                   const TraceSource& source);

  Status Start();
  void WriteEveryInterval() noexcept;
  // These return why nothing is recorded any more, or an empty text. It is logged when the lock is
  // released, because the application's callback may call the library.
  std::string TakeAndWrite(const TraceRecorder* last);
  std::string Write();
  void Take(TraceRecorder* recorder);
  bool is_full() const { return has_failed_ || size_ + text_.size() >= kMostFileBytes; }
  void AppendProcess(const TraceSource& source);
  void BeginEvent(std::string_view name, std::string_view phase);
  static uint32_t ThreadOf(const TraceRecorder& recorder, uint32_t row) {
    return kFirstThread + recorder.number_ * TraceRecorder::kMostRows + row;
  }
  void AppendRow(TraceRecorder* recorder, uint32_t row);
  void AppendEvent(const TraceRecorder& recorder, const TraceEvent& event);
  void AppendDropped(TraceRecorder* recorder);

  const std::string path_;
  int descriptor_;
  const int process_;  // the rank of the first recorder
  const int owner_pid_ = getpid();
  std::atomic<uint32_t> attached_ = 0;  // recorders: the thread sleeps without any
  std::mutex mutex_;                    // guards everything below
  std::vector<TraceRecorder*> recorders_;
  uint32_t next_recorder_ = 0;
  uint64_t next_overlapping_ = 0;
  std::string text_;   // to be written
  uint64_t size_ = 0;  // of the file, without kEnd
  bool is_empty_ = true;
  bool has_failed_ = false;        // a write: nothing is recorded any more
  bool has_told_of_size_ = false;  // in the log
};

Result<TraceFile*> TraceFile::OfProcess(const std::string& pattern, const TraceSource& source) {
  static std::mutex mutex;
  static TraceFile* file = nullptr;  // guarded by mutex
  const std::lock_guard lock(mutex);
  if (file != nullptr && file->is_of_this_process()) return file;
  // A descriptor that a fork has copied would hold the lock of the original after its end.
  if (file != nullptr) close(std::exchange(file->descriptor_, -1));
  ONEBIT_ASSIGN_OR_RETURN(auto created, Create(pattern, source));
  file = created.release();
  static std::once_flag has_registered;
  std::call_once(has_registered, [] {
    std::atexit([] {
      if (file->is_of_this_process()) file->Flush();
    });
  });
  return file;
}

Result<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& pattern,
                                                     const TraceSource& source) {
  if (source.has_other_processes && !HasPlaceholder(pattern, 'r') &&
      !HasPlaceholder(pattern, 'p')) {
    return Error(
        Code::kInvalidUsage,
        "{}: ranks of several processes would write \"{}\": put %r, the rank, or %p, the process "
        "id, into the name",
        kSetting, pattern);
  }
  std::string path = ExpandPath(pattern, source.rank);
  ONEBIT_ASSIGN_OR_RETURN(const int descriptor, OpenAlone(path));
  std::unique_ptr<TraceFile> file(new TraceFile(std::move(path), descriptor, source.rank));
  file->text_ += '[';
  file->AppendProcess(source);
  // Shows now, not after hours, whether the file can be written.
  const std::string problem = file->Write();
  Status status =
      problem.empty() ? file->Start() : Error(Code::kInvalidUsage, "{}: {}", kSetting, problem);
  if (!status.ok()) {
    close(descriptor);
    return status;
  }
  Log(LogLevel::kInfo, "rank {}: this process writes a trace to {}", source.rank, file->path_);
  return file;
}

Status TraceFile::Start() {
  try {
    const WithoutSignals blocked;
    std::thread([this] { WriteEveryInterval(); }).detach();
  } catch (const std::system_error& error) {
    return Error(Code::kSystemError, "cannot start the thread that writes the trace: {}",
                 error.what());
  }
  return OkStatus();
}

void TraceFile::WriteEveryInterval() noexcept {
  pthread_setname_np(pthread_self(), "onebit-trace");
  while (true) {
    attached_.wait(0);
    std::this_thread::sleep_for(kWriteInterval);
    Flush();
  }
}

void TraceFile::Attach(TraceRecorder* recorder) {
  {
    const std::lock_guard lock(mutex_);
    recorders_.push_back(recorder);
    recorder->number_ = next_recorder_++;
  }
  ++attached_;
  attached_.notify_one();
}

void TraceFile::Detach(TraceRecorder* recorder) noexcept {
  Flush(recorder);
  --attached_;
  const std::lock_guard lock(mutex_);
  std::erase(recorders_, recorder);
}

void TraceFile::Flush(const TraceRecorder* last) noexcept {
  try {
    const std::string problem = TakeAndWrite(last);
    if (!problem.empty()) Log(LogLevel::kWarn, "{}; later events are not recorded", problem);
  } catch (const std::bad_alloc&) {
    // There is no memory for a line in the log either.
  }
}

// A full file tells how many events a recorder has dropped once, at its end.
std::string TraceFile::TakeAndWrite(const TraceRecorder* last) {
  const std::lock_guard lock(mutex_);
  try {
    for (TraceRecorder* recorder : recorders_) {
      Take(recorder);
      const bool has_dropped = recorder->dropped() != recorder->dropped_in_file_;
      if (has_dropped && (!is_full() || recorder == last)) AppendDropped(recorder);
    }
    return Write();
  } catch (const std::bad_alloc&) {
    text_.clear();  // It may end within an event.
    has_failed_ = true;
    throw;
  }
}

void TraceFile::Take(TraceRecorder* recorder) {
  const uint64_t end = recorder->added_.load(std::memory_order_acquire);
  uint64_t next = recorder->taken_.load(std::memory_order_relaxed);
  for (; next != end && !is_full(); ++next) {
    const TraceEvent& event = recorder->ring_[next % TraceRecorder::kCapacity];
    if (!recorder->is_row_named_[event.row]) AppendRow(recorder, event.row);
    AppendEvent(*recorder, event);
  }
  recorder->dropped_.fetch_add(end - next, std::memory_order_relaxed);
  recorder->taken_.store(end, std::memory_order_release);
}

std::string TraceFile::Write() {
  const std::string text = std::exchange(text_, {});
  if (text.empty() || has_failed_) return {};
  const std::string whole = text + std::string(kEnd);
  const WithoutFileSizeSignal no_signal;
  for (size_t done = 0; done < whole.size();) {
    const ssize_t written = pwrite(descriptor_, whole.data() + done, whole.size() - done,
                                   static_cast<off_t>(size_ + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? ENOSPC : errno;
      has_failed_ = true;
      // Ends the list where it ended before, which needs no further room.
      [[maybe_unused]] const bool has_ended =
          pwrite(descriptor_, kEnd.data(), kEnd.size(), static_cast<off_t>(size_)) > 0 &&
          ftruncate(descriptor_, static_cast<off_t>(size_ + kEnd.size())) == 0;
      return Format("cannot write the trace file \"{}\": {}", path_, TextOfError(error));
    }
    done += static_cast<size_t>(written);
  }
  size_ += text.size();
  if (!is_full() || std::exchange(has_told_of_size_, true)) return {};
  return Format("the trace file \"{}\" has reached its limit of {} MiB", path_,
                kMostFileBytes >> 20);
}

void TraceFile::BeginEvent(std::string_view name, std::string_view phase) {
  Append(&text_, std::exchange(is_empty_, false) ? "\n{\"name\":\"" : ",\n{\"name\":\"", name,
         "\",\"ph\":\"", phase, "\",\"pid\":", kFirstProcess + process_);
}

// The clock ties the times of this machine to those of others.
void TraceFile::AppendProcess(const TraceSource& source) {
  BeginEvent("process_name", "M");
  AppendFormat(&text_, ",\"args\":{{\"name\":\"{}{}:{}\"}}}}",
               source.has_other_processes ? Format("rank {}, ", source.rank) : "",
               Escaped(HostName()), owner_pid_);
  BeginEvent("process_sort_index", "M");
  AppendFormat(&text_, ",\"args\":{{\"sort_index\":{}}}}}", process_);
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  BeginEvent("onebit_clock", "M");
  AppendFormat(&text_, ",\"args\":{{\"boot_id\":\"{}\",\"steady_ns\":{},\"unix_ns\":{}}}}}",
               Escaped(BootId()), NanosecondsOf(TraceClock::now()),
               int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
}

// The name is for viewers; what it is made of, for programs.
void TraceFile::AppendRow(TraceRecorder* recorder, uint32_t row) {
  recorder->is_row_named_[row] = true;
  const TraceSource& source = recorder->source_;
  const uint32_t number = ThreadOf(*recorder, row);
  const std::string name = source.name_of_row(row);
  const std::string host = source.hosts > 1 ? Format(", host {}", source.host) : "";
  BeginEvent("thread_name", "M");
  AppendFormat(&text_,
               ",\"tid\":{},\"args\":{{\"name\":\"rank {}{}: {} ({:08x})\",\"rank\":{},\"host\":{},"
               "\"hosts\":{},\"row\":\"{}\",\"communicator\":\"{:08x}\"}}}}",
               number, source.rank, host, name, source.comm_id, source.rank, source.host,
               source.hosts, name, source.comm_id);
  BeginEvent("thread_sort_index", "M");
  AppendFormat(&text_, ",\"tid\":{},\"args\":{{\"sort_index\":{}}}}}", number, number);
}

// Spans that may overlap are what the format calls nestable asynchronous events. Their numbers are
// local to the process, so that files of several can become one.
void TraceFile::AppendEvent(const TraceRecorder& recorder, const TraceEvent& event) {
  const int64_t begin = NanosecondsOf(event.begin);
  const int64_t end = std::max(begin, NanosecondsOf(event.end));
  const uint64_t overlapping = event.may_overlap ? ++next_overlapping_ : 0;
  const auto begin_event = [&](std::string_view phase, int64_t time) {
    BeginEvent(event.name, phase);
    Append(&text_, ",\"tid\":", ThreadOf(recorder, event.row), ",\"cat\":\"", event.category, "\"");
    if (event.may_overlap) Append(&text_, ",\"id2\":{\"local\":\"", overlapping, "\"}");
    AppendTime(&text_, "ts", time);
  };
  begin_event(event.may_overlap ? "b" : "X", begin);
  if (!event.may_overlap) AppendTime(&text_, "dur", end - begin);
  AppendArgs(&text_, event);
  if (!event.may_overlap) return;
  begin_event("e", end);
  text_ += '}';
}

void TraceFile::AppendDropped(TraceRecorder* recorder) {
  const uint64_t dropped = recorder->dropped();
  BeginEvent("events dropped", "i");
  AppendFormat(&text_, ",\"tid\":{},\"s\":\"t\"", ThreadOf(*recorder, 0));
  AppendTime(&text_, "ts", NanosecondsOf(TraceClock::now()));
  AppendFormat(&text_, ",\"args\":{{\"count\":{}}}}}", dropped - recorder->dropped_in_file_);
  recorder->dropped_in_file_ = dropped;
}

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::Open(const std::string& pattern,
                                                           const TraceSource& source) {
  ONEBIT_ASSIGN_OR_RETURN(TraceFile * file, TraceFile::OfProcess(pattern, source));
  std::unique_ptr<TraceRecorder> recorder(new TraceRecorder(*file, source));
  file->Attach(recorder.get());
  return recorder;
}

TraceRecorder::~TraceRecorder() {
  if (!file_.is_of_this_process()) return;
  file_.Detach(this);
  const uint64_t count = dropped();
  if (count == 0 || !LogEnabled(LogLevel::kWarn)) return;
  try {
    Log(LogLevel::kWarn,
        "rank {}: {} events are missing from the trace: they came faster than they could be "
        "written, or the file was full",
        source_.rank, count);
  } catch (const std::bad_alloc&) {
    // The file has their number.
  }
}

void TraceRecorder::Flush() noexcept {
  if (file_.is_of_this_process()) file_.Flush();
}

}  // namespace onebit
