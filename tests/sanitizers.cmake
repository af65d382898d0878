# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# This table lists what sanitizers leave out. Every test runs in the release build. AddressSanitizer runs
# those where memory is at stake, ThreadSanitizer those where threads are: what a program computes is the same
# under both, only ten times slower. Each row says which test still meets the faults that
# AddressSanitizer could have found there. Programs of one thread are of no use to ThreadSanitizer: it
# runs calls, groups, communicators, transports, streams and stand-ins of devices.

# onebit_leave_out(<sanitizers> <program> <what remains>)
function(onebit_leave_out sanitizers program what_remains)
  foreach(sanitizer IN LISTS sanitizers)
    if(ONEBIT_SANITIZE MATCHES "${sanitizer}")
      set_property(GLOBAL APPEND PROPERTY ONEBIT_LEFT_OUT ${program})
    endif()
  endforeach()
endfunction()

# A process for each test takes a sanitizer longer than most tests do, so it runs the tests of a program in one process
# or, if they have several ranks, in four. Tests of these programs begin with what a process has not done yet, or fork one
# that has no other threads.
set(programs_of_new_processes api_test device_test device_start_test trace_recorder_test ucx_transport_test)

# onebit_discover_tests(<program> <arguments of gtest_discover_tests>...)
function(onebit_discover_tests program)
  get_property(left_out GLOBAL PROPERTY ONEBIT_LEFT_OUT)
  if(program IN_LIST left_out)
    return()
  endif()
  if(NOT ONEBIT_SANITIZE OR program IN_LIST programs_of_new_processes)
    gtest_discover_tests(${program} ${ARGN})
    return()
  endif()
  cmake_parse_arguments(test "" "TEST_FILTER;TEST_PREFIX" "PROPERTIES" ${ARGN})
  cmake_parse_arguments(property "" "LABELS;TIMEOUT;COST" "ENVIRONMENT" ${test_PROPERTIES})
  set(unknown ${test_UNPARSED_ARGUMENTS} ${property_UNPARSED_ARGUMENTS})
  if(unknown)
    message(FATAL_ERROR "onebit_discover_tests(${program}) would ignore ${unknown}: handle them here")
  endif()
  if(NOT test_TEST_FILTER)
    set(test_TEST_FILTER "*")  # an empty filter selects nothing
  endif()
  set(parts 1)
  if(property_LABELS STREQUAL "ranks")
    set(parts 4)
  endif()
  foreach(part RANGE 1 ${parts})
    set(name ${test_TEST_PREFIX}${program}.${property_LABELS}.${part})
    math(EXPR index "${part} - 1")
    add_test(NAME ${name} COMMAND ${program} --gtest_filter=${test_TEST_FILTER})
    # What TIMEOUT and COST say is for one test. CTest begins with what costs most: a long program that it began last
    # would run alone at the end. The first part always has some tests.
    set_tests_properties(${name} PROPERTIES LABELS ${property_LABELS} TIMEOUT 900 COST ${parts}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index};${property_ENVIRONMENT}")
    if(part EQUAL 1)
      set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests")
    endif()
  endforeach()
endfunction()

set(both address thread)
# Numbers: oracles, recorded bytes, convergence. The same code runs for other tests.
onebit_leave_out("${both}" allreduce_values_test     "allreduce_test, state_test, fault_test")
onebit_leave_out("${both}" chunk_values_test         "chunk_test, state_test")
onebit_leave_out("${both}" optim_values_test         "optim_test: family_test steps every optimizer")
onebit_leave_out("${both}" golden_test               "codec_test, kernels_compress_test, fuzz.packet")
onebit_leave_out("${both}" golden_parts_test         "chunk_test")
onebit_leave_out("${both}" golden_states_test        "state_test, sync_test, optim_test, fuzz.state")
onebit_leave_out("${both}" golden_low_bit_test       "low_bit_test, kernels_low_bit_compress_test, fuzz.low_bit")
onebit_leave_out("${both}" golden_levels_test        "two_levels_codec_test")
onebit_leave_out("${both}" golden_sparse_test        "sparse_test, fuzz.sparse")
onebit_leave_out("${both}" plan_test                 "group_test, chunk_test, allreduce_test run all plans")
onebit_leave_out("${both}" schedule_test             "optim_test; fuzz.state reads its states")
onebit_leave_out("${both}" topology_test             "allreduce_test: compute_threads_test")
onebit_leave_out("${both}" allreduce_model_test      "none needed: no part of the library")
onebit_leave_out("${both}" kernels_float_formats_test   "kernels_dense_test, kernels_reduce_test")
onebit_leave_out("${both}" kernels_fp_environment_test  "kernels_compress_test, kernels_optimizer_test")
onebit_leave_out("${both}" kernels_nonfinite_test    "kernels_compress_test, kernels_decode_test")
onebit_leave_out("${both}" kernels_oracle_test       "the other kernel tests call the oracle")
onebit_leave_out("${both}" kernels_low_bit_oracle_test  "kernels_low_bit_compress_test, kernels_low_bit_decode_test")
onebit_leave_out("${both}" cuda_kernels_nonfinite_test  "cuda_kernels_compress_test, cuda_kernels_decode_test")
onebit_leave_out("${both}" cuda_scale_test           "cuda_kernels_compress_test")
onebit_leave_out("${both}" random_calls              "the tests of each collective")
# Counts and constants, which instrumented code changes or does not touch.
onebit_leave_out("${both}" steady_state_test         "allreduce_test, group_test")
onebit_leave_out("${both}" optim_steady_state_test   "optim_test")
onebit_leave_out("${both}" cuda_steady_test          "cuda_calls_test, cuda_rebind_test")
onebit_leave_out("${both}" declared_settings_test    "loader_test; fuzz.settings")
onebit_leave_out("${both}" nccl_abi_test             "none needed: layouts, compared when it is compiled")
onebit_leave_out("${both}" nccl_real_test            "nccl_transport_test")
onebit_leave_out("${both}" fault_words_test          "fault_matrix_test")
onebit_leave_out("${both}" fault_matrix              "fault_matrix_test: the program makes a table")
onebit_leave_out("${both}" launch_test               "fuzz.launch reads the same texts")
# One thread, or threads that do the same elsewhere.
onebit_leave_out(thread    base_test                 "one thread: AddressSanitizer runs it")
onebit_leave_out(thread    codec_test                "one thread: AddressSanitizer runs it")
onebit_leave_out(thread    compressor_test           "one thread: AddressSanitizer runs it")
onebit_leave_out(thread    onebit_hpp_test           "one thread: AddressSanitizer runs it")
onebit_leave_out(thread    frames_test               "one thread: AddressSanitizer runs it")
onebit_leave_out(thread    preload_decisions_test    "one thread: AddressSanitizer runs it")
onebit_leave_out(thread    wire_test                 "one rank: group_test makes the calls, on several threads")
onebit_leave_out(thread    bootstrap_parts_test      "control_test runs the parts on their threads")
onebit_leave_out(thread    loader_test               "join_test loads transports on several threads")
onebit_leave_out(thread    nccl_settings_test        "nccl_transport_test")
onebit_leave_out(thread    device_heap_test          "AddressSanitizer runs it")
onebit_leave_out(thread    heap_test                 "fault_test, join_test: the same calls, with memory")
onebit_leave_out(thread    fault_matrix_test         "fault_test has the same faults over local")
onebit_leave_out(thread    rebind_fault_test         "rebind_test, fault_test")
onebit_leave_out(thread    optim_test                "group_test makes the calls, from the same threads")
