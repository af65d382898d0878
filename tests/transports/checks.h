// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The checks of the conformance program, by file.
#pragma once

#include "tests/transports/conformance.h"

namespace onebit::conformance {

// checks_messages.cc
void PropertiesAreSane(const Subject& subject, OutOfBand& oob);
void MessagesKeepTheirOrder(const Subject& subject, OutOfBand& oob);
void AllSizesArrive(const Subject& subject, OutOfBand& oob);
void PayloadWaitsForAccept(const Subject& subject, OutOfBand& oob);
void HeadersRunAhead(const Subject& subject, OutOfBand& oob);

// checks_load.cc
void FullThenRoom(const Subject& subject, OutOfBand& oob);
void FullRingForgetsNoSend(const Subject& subject, OutOfBand& oob);
void SendsDoneNeedNoProgress(const Subject& subject, OutOfBand& oob);
void StormOfRandomSizes(const Subject& subject, OutOfBand& oob);
void TwoCommunicators(const Subject& subject, OutOfBand& oob);
void CountersTellBytes(const Subject& subject, OutOfBand& oob);
void MessagesAllocateNothing(const Subject& subject, OutOfBand& oob);
void OpenAndCloseOften(const Subject& subject, OutOfBand& oob);

// checks_wait.cc
void WaitEndsAtItsTimeout(const Subject& subject, OutOfBand& oob);
void WaitSeesEveryMessage(const Subject& subject, OutOfBand& oob);
void WaitSeesEverySend(const Subject& subject, OutOfBand& oob);
void WaitSeesEarlierNews(const Subject& subject, OutOfBand& oob);
void WaitEndsOnAbort(const Subject& subject, OutOfBand& oob);

// checks_cancel.cc
void CancelOfUnreceivedSend(const Subject& subject, OutOfBand& oob);
void CancelWhilePeerReceives(const Subject& subject, OutOfBand& oob);
void CancelOfReceive(const Subject& subject, OutOfBand& oob);
void CloseTakesSendsBack(const Subject& subject, OutOfBand& oob);
void AbortWhileReceiving(const Subject& subject, OutOfBand& oob);

// checks_start.cc
void AbortBeforeConnect(const Subject& subject, OutOfBand& oob);
void AbortAfterFailedConnect(const Subject& subject, OutOfBand& oob);
void AbortDuringConnect(const Subject& subject, OutOfBand& oob);

// checks_end.cc
void AbortedCallsFail(const Subject& subject, OutOfBand& oob);
void PeersNoticeAbort(const Subject& subject, OutOfBand& oob);
void PeersNoticeClose(const Subject& subject, OutOfBand& oob);
void OrderlyCloseIsSilent(const Subject& subject, OutOfBand& oob);
void SentBeforeCloseArrives(const Subject& subject, OutOfBand& oob);

}  // namespace onebit::conformance
