// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// List of the checks.
#include "tests/transports/conformance.h"

#include "tests/transports/checks.h"

namespace onebit::conformance {
namespace {

constexpr Check kChecks[] = {
    {"PropertiesAreSane", 1, PropertiesAreSane},
    {"MessagesKeepTheirOrder", 1, MessagesKeepTheirOrder},
    {"AllSizesArrive", 1, AllSizesArrive},
    {"PayloadWaitsForAccept", 1, PayloadWaitsForAccept},
    {"HeadersRunAhead", 1, HeadersRunAhead},
    {"FullThenRoom", 2, FullThenRoom},
    {"FullRingForgetsNoSend", 2, FullRingForgetsNoSend},
    {"SendsDoneNeedNoProgress", 2, SendsDoneNeedNoProgress},
    {"StormOfRandomSizes", 1, StormOfRandomSizes},
    {"TwoCommunicators", 1, TwoCommunicators},
    {"CountersTellBytes", 1, CountersTellBytes},
    {"MessagesAllocateNothing", 1, MessagesAllocateNothing},
    {"OpenAndCloseOften", 1, OpenAndCloseOften},
    {"WaitEndsAtItsTimeout", 1, WaitEndsAtItsTimeout},
    {"WaitSeesEveryMessage", 2, WaitSeesEveryMessage},
    {"WaitSeesEverySend", 2, WaitSeesEverySend},
    {"WaitSeesEarlierNews", 2, WaitSeesEarlierNews},
    {"WaitEndsOnAbort", 1, WaitEndsOnAbort},
    {"CancelOfUnreceivedSend", 1, CancelOfUnreceivedSend},
    {"CancelWhilePeerReceives", 2, CancelWhilePeerReceives},
    {"CancelOfReceive", 2, CancelOfReceive},
    {"CloseTakesSendsBack", 2, CloseTakesSendsBack},
    {"AbortWhileReceiving", 2, AbortWhileReceiving},
    {"AbortBeforeConnect", 1, AbortBeforeConnect},
    {"AbortAfterFailedConnect", 1, AbortAfterFailedConnect},
    {"AbortDuringConnect", 2, AbortDuringConnect},
    {"AbortedCallsFail", 1, AbortedCallsFail},
    {"PeersNoticeAbort", 2, PeersNoticeAbort},
    {"PeersNoticeClose", 2, PeersNoticeClose},
    {"OrderlyCloseIsSilent", 2, OrderlyCloseIsSilent},
    {"SentBeforeCloseArrives", 2, SentBeforeCloseArrives},
};

}  // namespace

std::span<const Check> AllChecks() { return kChecks; }

std::string RunCheck(const Subject& subject, const Check& check, int nranks) {
  const std::string failures =
      subject.run_ranks(nranks, [&subject, &check](OutOfBand& oob) { check.run(subject, oob); });
  if (failures.empty()) return "";
  return Text(check.name, " on ", nranks, " ranks, seed ", subject.seed, ": ", failures);
}

}  // namespace onebit::conformance
