// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls UCP.
#include "plugins/transport_ucx/worker.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "plugins/transport_ucx/ucx_process.h"

namespace onebit::ucx {

using plugin::Sent;

namespace {

void OnSent(void* request, ucs_status_t /*status*/, void* user_data) {
  // A failure needs no handling here: the link's error handler reports it as well.
  auto* slot = static_cast<SlotPool::Slot*>(user_data);
  ++*slot->sent;
  slot->pool->Return(slot);
  ucp_request_free(request);
}

// Runs inside progress, where UCX must not be called: the caller handles the loss afterwards.
void OnLoss(void* argument, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto* link = static_cast<UcxLink*>(argument);
  link->loss = ucs_status_string(status);
  *link->has_losses = true;
}

Sent Fail(UcxLink* link, ucs_status_ptr_t sent) {
  link->loss = ucs_status_string(UCS_PTR_IS_ERR(sent) ? UCS_PTR_STATUS(sent) : UCS_ERR_IO_ERROR);
  *link->has_losses = true;
  return Sent::kFailed;
}

// How long UCX may take to give up what is pending on the links of an endpoint.
constexpr uint64_t kMostClosingNs = 300'000'000;

// With FORCE_IMM_CMPL UCX sends now or not at all, and keeps no pointer. In UCX 1.13 that works for
// messages that it calls short: over TCP anything up to a segment, over shared memory 93 bytes.
constexpr ucp_request_param_t kAtOnce{
    .op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
    .flags = UCP_AM_SEND_FLAG_EAGER,
    .memory_type = UCS_MEMORY_TYPE_HOST};  // else UCX looks it up for every message

// Most bytes of header and payload that UCX 1.13 sends at once over shared memory.
constexpr size_t kMostShortSharedBytes = 84;

// Says what to do if shared memory is short; empty: it is not.
std::string NeedOfMemory() {
  constexpr uint64_t kNeededMiB = 16;
  struct statvfs facts {};
  const bool is_there = statvfs("/dev/shm", &facts) == 0;
  const uint64_t free_mib = is_there ? facts.f_bavail * facts.f_frsize >> 20 : 0;
  const bool is_read_only = is_there && (facts.f_flag & ST_RDONLY) != 0;
  if (free_mib >= kNeededMiB && !is_read_only) return "";
  const std::string state =
      is_read_only
          ? "it is read-only: mount it writable"
          : std::to_string(free_mib) + " MiB are free: make it larger (docker run --shm-size)";
  return "; UCX needs up to " + std::to_string(kNeededMiB) +
         " MiB in /dev/shm for each rank, and " + state +
         ", or use ONEBIT_TRANSPORT=socket, which does not need it";
}

}  // namespace

onebitResult_t Worker::Create(const Context& context, ucp_context_h ucp, Arrival arrival,
                              Greeting greeting, void* argument, std::unique_ptr<Worker>* worker) {
  std::unique_ptr<Worker> created(new Worker);
  created->context_ = ucp;
  created->arrival_ = arrival;
  created->greeting_ = greeting;
  created->argument_ = argument;
  const ucp_worker_params_t params{.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  ucs_status_t status = ucp_worker_create(ucp, &params, &created->worker_);
  for (const auto& [id, receive] :
       {std::pair{kActiveMessage, &OnMessage}, {kGreeting, &OnGreeting}}) {
    const ucp_am_handler_param_t handler{
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = receive,
        .arg = created.get()};
    if (status == UCS_OK) status = ucp_worker_set_am_recv_handler(created->worker_, &handler);
  }
  if (status == UCS_OK) status = ucp_worker_get_efd(created->worker_, &created->wake_fd_);
  if (status != UCS_OK) {
    context.Warn("cannot make a worker: %s (%s)%s", ucs_status_string(status),
                 LogScope::LastError().c_str(), NeedOfMemory().c_str());
    return ResultOf(status);
  }
  *worker = std::move(created);
  return onebitSuccess;
}

Worker::~Worker() {
  if (flush_ != nullptr) ucp_request_free(flush_);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
}

void Worker::EnableRendezvous(size_t ranks) {
  pieces_ = std::make_unique<PieceReceives>(context_, worker_, kMostPiecesInFlight * ranks,
                                            kRendezvousPieceBytes, arrival_, argument_);
}

std::unique_ptr<Registration> Worker::Register(SlotPool* pool) const {
  return std::make_unique<Registration>(context_, pool->memory());
}

ucs_status_t Worker::OnMessage(void* argument, const void* header, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* param) {
  auto* worker = static_cast<Worker*>(argument);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    if (worker->pieces_ != nullptr && worker->pieces_->CanTake(header_bytes, bytes)) {
      return worker->pieces_->Take(header, header_bytes, data, bytes);
    }
    bytes = 0;  // Not from one of our ranks: the library drops it, and says so.
  }
  worker->arrival_(worker->argument_, header, header_bytes, data, bytes);
  return UCS_OK;
}

ucs_status_t Worker::OnGreeting(void* argument, const void* header, size_t header_bytes,
                                void* /*data*/, size_t /*bytes*/,
                                const ucp_am_recv_param_t* /*param*/) {
  const auto* worker = static_cast<Worker*>(argument);
  uint32_t rank = 0;
  if (header_bytes != sizeof rank) return UCS_OK;
  std::memcpy(&rank, header, sizeof rank);
  worker->greeting_(worker->argument_, rank);
  return UCS_OK;
}

std::string Worker::Address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (ucp_worker_get_address(worker_, &address, &bytes) != UCS_OK) return "";
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return copy;
}

ucs_status_t Worker::Connect(const void* address, UcxLink* link) {
  // Shared memory does not support error mode PEER: UCX would silently use TCP instead. In mode
  // NONE UCX does not notice the death of a peer, and the library's control channel has to report
  // it.
  const ucp_ep_params_t params{
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                    UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .address = static_cast<const ucp_address_t*>(address),
      .err_mode = link->shares_memory ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = OnLoss, .arg = link}};
  return ucp_ep_create(worker_, &params, &link->endpoint);
}

Sent Worker::Greet(UcxLink* link, uint32_t rank) {
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(link->endpoint, kGreeting, &rank, sizeof rank, nullptr, 0, &kAtOnce);
  if (sent == nullptr) {
    link->opening = Opening::kConnected;
    return Sent::kYes;
  }
  const bool is_early = UCS_PTR_IS_ERR(sent) && UCS_PTR_STATUS(sent) == UCS_ERR_NO_RESOURCE;
  return is_early ? Sent::kNoRoom : Fail(link, sent);
}

Sent Worker::Send(UcxLink* link, std::span<const std::byte> header,
                  std::span<const std::byte> payload, const Staging& staging) {
  const Registration* const registration =
      link->shares_memory ? nullptr : staging.registration.get();
  ucp_request_param_t param = kAtOnce;
  if (registration == nullptr && link->opening != Opening::kConnected &&
      (!link->shares_memory || header.size() + payload.size() <= kMostShortSharedBytes)) {
    const ucs_status_ptr_t sent =
        ucp_am_send_nbx(link->endpoint, kActiveMessage, header.data(), header.size(),
                        payload.data(), payload.size(), &param);
    if (sent == nullptr) {
      link->has_carried = true;
      return Sent::kYes;
    }
    // UCX's contract excludes a request here.
    if (!UCS_PTR_IS_ERR(sent) || UCS_PTR_STATUS(sent) != UCS_ERR_NO_RESOURCE)
      return Fail(link, sent);
  }
  if (link->in_flight() >= staging.most_in_flight) return Sent::kNoRoom;
  SlotPool::Slot* slot = staging.pool->Take();
  if (slot == nullptr) return Sent::kNoRoom;
  std::byte* staged = slot->bytes();
  std::memcpy(staged, header.data(), header.size());
  if (!payload.empty()) std::memcpy(staged + header.size(), payload.data(), payload.size());
  slot->sent = &link->sent;
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                       UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  if (registration != nullptr) {
    param.flags = UCP_AM_SEND_FLAG_RNDV;
    param.op_attr_mask |= registration->attribute();
    param.memh = registration->handle();
  }
  param.cb.send = OnSent;
  param.user_data = slot;
  if (link->opening == Opening::kConnected) param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  link->opening = Opening::kDone;
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(link->endpoint, kActiveMessage, staged, header.size(), staged + header.size(),
                      payload.size(), &param);
  if (sent == nullptr || UCS_PTR_IS_ERR(sent)) {
    staging.pool->Return(slot);
    link->has_carried |= sent == nullptr;
    return sent == nullptr ? Sent::kYes : Fail(link, sent);
  }
  ++link->taken;
  return Sent::kYes;
}

std::string Worker::Route(const UcxLink& link) {
  // UCX 1.13 names the transports of an endpoint only in text. The line about active messages looks
  // like "lane[0]:  0:tcp/lo.0 md[0]   -> md[0]/tcp/sysdev[255] am am_bw#0".
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "UCX";
  ucp_ep_print_info(link.endpoint, stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, std::free);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("lane[") == line.npos || (line + " ").find(" am ") == line.npos) continue;
    unsigned lane = 0;
    unsigned index = 0;
    char transport[32] = "";
    char device[48] = "";
    if (std::sscanf(line.c_str() + line.find("lane["), "lane[%u]: %u:%31[^/]/%47[^. ]", &lane,
                    &index, transport, device) != 4) {
      continue;
    }
    const std::string name(transport);
    if (name == "posix" || name == "sysv" || name == "xpmem") return "shared memory";
    if (name == "self") return "memory of this process";
    return name + " over " + device;
  }
  return "UCX";
}

void Worker::StartFlush() {
  if (flush_ != nullptr) ucp_request_free(flush_);
  const ucp_request_param_t param{};
  flush_ = ucp_worker_flush_nbx(worker_, &param);
  if (UCS_PTR_IS_ERR(flush_)) flush_ = nullptr;
}

bool Worker::is_flushed() const {
  return flush_ == nullptr || ucp_request_check_status(flush_) != UCS_INPROGRESS;
}

void Worker::CloseByForce(UcxLink* link) {
  // In mode NONE UCX rejects a forced close, and an unforced one may wait for the peer. Such a link
  // is closed with the worker.
  if (link->endpoint == nullptr || link->shares_memory) return;
  const ucp_request_param_t param{.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags = UCP_EP_CLOSE_FLAG_FORCE};
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(link->endpoint, &param);
  if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);  // UCX finishes it on its own
  link->endpoint = nullptr;
}

// UCX 1.13 ends the process if a worker is destroyed that is not done with a forced close
// (ucp_ep_delete), or while one of UCX's own messages that connect endpoints waits on it
// (ucp_request_send_state_ff). A path that has carried a frame is connected.
bool Worker::Close(std::span<UcxLink> links, const Context& context) {
  const bool has_connected = std::ranges::all_of(links, [](const UcxLink& link) {
    return link.endpoint == nullptr || link.shares_memory || link.has_carried || link.sent != 0;
  });
  if (pieces_ != nullptr) pieces_->Stop();
  arrival_ = [](void*, const void*, size_t, const void*, size_t) {};
  if (!has_connected) return false;
  for (UcxLink& link : links) CloseByForce(&link);
  StartFlush();
  const uint64_t deadline = context.Now() + kMostClosingNs;
  while (!is_flushed() && context.Now() < deadline) Progress();
  return is_flushed();
}

}  // namespace onebit::ucx
