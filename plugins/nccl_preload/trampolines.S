// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of the drop-in that only pass on to NCCL, whatever their arguments: jumps, through a
// slot that the first call fills in.

#define PASS(name) PASS_AS(name)
#define PASS_AS(name) trampoline name

// Begins a function that has a slot and its name as a text.
.macro begin name
  .section .bss.slots, "aw", @nobits
  .p2align 3
.Lslot_\name:
  .zero 8
  .section .rodata.names, "a"
.Lname_\name:
  .asciz "\name"
  .text
  .globl \name
  .type \name, @function
  .p2align 4
\name:
.endm

#if defined(__x86_64__)

.macro trampoline name
  begin \name
  endbr64
  movq .Lslot_\name(%rip), %r11
  testq %r11, %r11
  jz 1f
  jmp *%r11
1:
  leaq .Lname_\name(%rip), %r10
  leaq .Lslot_\name(%rip), %r11
  jmp .Lresolve
  .size \name, . - \name
.endm

// Calls onebitResolveNccl(name, slot) and jumps to its result, with the caller's arguments.
  .text
  .p2align 4
.Lresolve:
  pushq %rbp
  movq %rsp, %rbp
  subq $192, %rsp
  andq $-16, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  movq %r10, %rdi
  movq %r11, %rsi
  call onebitResolveNccl
  movq %rax, %r11
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %rax
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  leave
  jmp *%r11

#elif defined(__aarch64__)

.macro trampoline name
  begin \name
  adrp x16, .Lslot_\name
  add x16, x16, :lo12:.Lslot_\name
  ldr x17, [x16]
  cbz x17, 1f
  br x17
1:
  adrp x17, .Lname_\name
  add x17, x17, :lo12:.Lname_\name
  b .Lresolve
  .size \name, . - \name
.endm

  .text
  .p2align 4
.Lresolve:
  stp x29, x30, [sp, #-224]!
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x17
  mov x1, x16
  bl onebitResolveNccl
  mov x17, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  br x17

#else
#error "no trampolines for this processor"
#endif

#define ONEBIT_WRAPPED(name) PASS(pnccl##name)
#define ONEBIT_PASSED(name) PASS(nccl##name); PASS(pnccl##name)
#define ONEBIT_PASSED_ONCE(name) PASS(nccl##name)
#include "plugins/nccl_preload/nccl_names.inc"

  .section .note.GNU-stack, "", @progbits
