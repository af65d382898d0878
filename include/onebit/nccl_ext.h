/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Options of single NCCL calls for onebit's interposer, libonebit-nccl-preload.so: which tensor
 * a call belongs to, and how it is compressed.
 *
 * They are members of the list ncclCollConfig_t.ext (NCCL 2.31 and later), which NCCL itself
 * ignores: the same program runs with the interposer and without it. This header has numbers only;
 * it needs neither <nccl.h> nor libonebit.
 *
 *   ncclConfigExt_t tensor = {.key = {ONEBIT_NCCL_VENDOR, onebitNcclTensor},
 *                             .val = {.raw = (void*)(uintptr_t)number_of_parameter}};
 *   ncclConfigExt_t codec = {.next = &tensor,
 *                            .key = {ONEBIT_NCCL_VENDOR, onebitNcclCodec},
 *                            .val = {.s = "fp4,start=100"}};
 *   ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
 *   config.ext = &codec;
 *   ncclAllReduceConfig(grads, grads, count, ncclFloat32, ncclAvg, comm, stream, &config);
 *
 * Calls. ncclAllReduceConfig, ncclReduceScatterConfig, ncclAllGatherConfig and ncclAlltoAllConfig
 * read the options. If another field of the configuration differs from NCCL_COLLCONFIG_INITIALIZER,
 * NCCL makes the call: fewer channels, an algorithm, a profiler tag or an event are properties of
 * its own kernels.
 *
 * Ranks. All ranks must give a call the same options. A difference is not detected: the ranks then
 * decide differently and hang, as with NCCL calls that differ.
 *
 * Rules. Nothing is compressed, and no option is read, unless ONEBIT_NCCL_RULES has rules: whoever
 * starts a program decides whether it may lose bits.
 *
 * Errors. A call with an unknown or duplicate option of this vendor, or with a value that an option
 * does not take, is not made: it returns ncclInvalidArgument, and a line in the log (ONEBIT_DEBUG)
 * says which option is wrong. The options of other vendors are ignored. A text need not outlive the
 * call.
 */
#ifndef ONEBIT_NCCL_EXT_H_
#define ONEBIT_NCCL_EXT_H_

/** `key.vendorId` of the options below; drawn at random, as NCCL asks vendors to. */
#define ONEBIT_NCCL_VENDOR 0xf436dc

/** `key.optionId`; in parentheses, the member of `val` that has the value. */
typedef enum {
  /**
   * (raw) The program's own number for the tensor, of 64 bits. Residuals belong to this number,
   * whatever the order and the buffers of the calls. Without it the order of the calls tells
   * tensors apart. Numbers are compared within a communicator only. A call with a different count,
   * type, operation, reduction or codec under the same number begins with new residuals.
   */
  onebitNcclTensor = 1,
  /**
   * (s) Codec and its options, as in a rule after its colon: "fp4" or "int8,plain,block=256". It
   * replaces the codec of the rules, even where no rule matches or rule `default` does not hold. A
   * rule that matches the call and has codec `off` stays in force. Types and reductions that no
   * rule can compress stay NCCL's.
   */
  onebitNcclCodec = 2,
  /** (i) 1: NCCL makes this call, and its tensor's residuals wait. 0: as without the option. */
  onebitNcclOff = 3
} onebitNcclOption_t;

#endif /* ONEBIT_NCCL_EXT_H_ */
