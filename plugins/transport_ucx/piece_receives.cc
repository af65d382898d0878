// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_ucx/piece_receives.h"

#include <cstring>

namespace onebit::ucx {

PieceReceives::PieceReceives(ucp_context_h context, ucp_worker_h worker, size_t count,
                             size_t piece_bytes, Arrival arrival, void* argument)
    : worker_(worker),
      count_(count),
      piece_bytes_(piece_bytes),
      arrival_(arrival),
      argument_(argument),
      memory_(std::make_unique_for_overwrite<std::byte[]>(count * piece_bytes)),
      registration_(context, {memory_.get(), count * piece_bytes}),
      pieces_(2 * count) {}

ucs_status_t PieceReceives::Take(const void* header, size_t header_bytes, void* announced,
                                 size_t bytes) {
  if (is_stopped_) return UCS_OK;
  Piece& taken = piece(announced_);
  taken.state = State::kWaiting;
  taken.header_bytes = header_bytes;
  taken.bytes = bytes;
  taken.announced = announced;
  taken.receives = this;
  std::memcpy(taken.header, header, header_bytes);
  const uint64_t number = announced_++;
  if (number - delivered_ >= count_) return UCS_INPROGRESS;  // UCX keeps it until Start
  Start(number);
  Deliver();
  return UCS_OK;
}

// Pieces begin in the order of their announcements, so `number` is begun_.
void PieceReceives::Start(uint64_t number) {
  Piece& coming = piece(number);
  coming.state = State::kComing;
  ++begun_;
  const ucp_request_param_t param{
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                      UCP_OP_ATTR_FIELD_MEMORY_TYPE | registration_.attribute(),
      .cb = {.recv_am = OnReceived},
      .user_data = &coming,
      .memory_type = UCS_MEMORY_TYPE_HOST,
      .memh = registration_.handle()};
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_, coming.announced, memory(number), coming.bytes, &param);
  if (request == nullptr) coming.state = State::kHere;
  if (UCS_PTR_IS_ERR(request)) coming.state = State::kLost;
}

// A failure needs no handling here: the link's error handler reports it as well.
void PieceReceives::OnReceived(void* request, ucs_status_t status, size_t /*bytes*/,
                               void* user_data) {
  auto* received = static_cast<Piece*>(user_data);
  received->state = status == UCS_OK ? State::kHere : State::kLost;
  ucp_request_free(request);
  received->receives->Deliver();
}

void PieceReceives::Deliver() {
  // A frame that is delivered may make the library send, and UCX end another receive meanwhile.
  if (is_delivering_ || is_stopped_) return;
  is_delivering_ = true;
  while (delivered_ != begun_) {
    const Piece& next = piece(delivered_);
    if (next.state == State::kComing) break;
    if (next.state == State::kHere) {
      arrival_(argument_, next.header, next.header_bytes, memory(delivered_), next.bytes);
    }
    ++delivered_;
    if (begun_ != announced_) Start(begun_);
  }
  is_delivering_ = false;
}

void PieceReceives::Stop() {
  is_stopped_ = true;
  for (; begun_ != announced_; ++begun_) ucp_am_data_release(worker_, piece(begun_).announced);
}

}  // namespace onebit::ucx
