// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The checks of the conformance program, by file.
#pragma once

#include "tests/transports/conformance.h"

namespace onebit::conformance {

// checks_messages.cc
void PropertiesAreSane(const Subject& subject, Meeting& meeting);
void MessagesKeepTheirOrder(const Subject& subject, Meeting& meeting);
void AllSizesArrive(const Subject& subject, Meeting& meeting);
void PayloadWaitsForAccept(const Subject& subject, Meeting& meeting);
void HeadersRunAhead(const Subject& subject, Meeting& meeting);

// checks_load.cc
void FullThenRoom(const Subject& subject, Meeting& meeting);
void FullRingForgetsNoSend(const Subject& subject, Meeting& meeting);
void SendsDoneNeedNoProgress(const Subject& subject, Meeting& meeting);
void StormOfRandomSizes(const Subject& subject, Meeting& meeting);
void TwoCommunicators(const Subject& subject, Meeting& meeting);
void CountersTellBytes(const Subject& subject, Meeting& meeting);
void MessagesAllocateNothing(const Subject& subject, Meeting& meeting);
void OpenAndCloseOften(const Subject& subject, Meeting& meeting);

// checks_wait.cc
void WaitEndsAtItsTimeout(const Subject& subject, Meeting& meeting);
void WaitSeesEveryMessage(const Subject& subject, Meeting& meeting);
void WaitSeesEverySend(const Subject& subject, Meeting& meeting);
void WaitSeesEarlierNews(const Subject& subject, Meeting& meeting);
void WaitEndsOnAbort(const Subject& subject, Meeting& meeting);

// checks_cancel.cc
void CancelOfUnreceivedSend(const Subject& subject, Meeting& meeting);
void CancelWhilePeerReceives(const Subject& subject, Meeting& meeting);
void CancelOfReceive(const Subject& subject, Meeting& meeting);
void CloseTakesSendsBack(const Subject& subject, Meeting& meeting);
void AbortWhileReceiving(const Subject& subject, Meeting& meeting);

// checks_start.cc
void AbortBeforeConnect(const Subject& subject, Meeting& meeting);
void AbortAfterFailedConnect(const Subject& subject, Meeting& meeting);
void AbortDuringConnect(const Subject& subject, Meeting& meeting);

// checks_end.cc
void AbortedCallsFail(const Subject& subject, Meeting& meeting);
void PeersNoticeAbort(const Subject& subject, Meeting& meeting);
void PeersNoticeClose(const Subject& subject, Meeting& meeting);
void OrderlyCloseIsSilent(const Subject& subject, Meeting& meeting);
void SentBeforeCloseArrives(const Subject& subject, Meeting& meeting);

}  // namespace onebit::conformance
