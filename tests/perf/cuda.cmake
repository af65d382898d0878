# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# The tools on the memory of CUDA devices, on the stand-ins for CUDA and NCCL.
if(NOT TARGET onebit_cuda_stand_in OR NOT TARGET onebit_nccl_stand_in OR NOT TARGET onebit_device_cuda)
  return()
endif()
set(stand_ins $<TARGET_FILE:onebit_cuda_stand_in> $<TARGET_FILE:onebit_nccl_stand_in>)
set(cuda_tests "")
if(TARGET onebit_transport_nccl)
  foreach(tool all_reduce_perf alltoall_perf all_gather_perf reduce_scatter_perf sendrecv_perf)
    add_test(NAME perf.cuda_${tool}
      COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/cuda_sweep_test.py $<TARGET_FILE:${tool}>
        ${stand_ins})
    list(APPEND cuda_tests perf.cuda_${tool})
  endforeach()
endif()
if(TARGET onebit_transport_ucx)
  add_test(NAME perf.cuda_group
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/group_perf_test.py $<TARGET_FILE:group_perf>
      $<TARGET_FILE:onebit_cuda_stand_in>)
  add_test(NAME perf.cuda_processes
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/cuda_sweep_test.py $<TARGET_FILE:all_reduce_perf>
      ${stand_ins} --procs)
  list(APPEND cuda_tests perf.cuda_group perf.cuda_processes)
  if(ONEBIT_SANITIZE MATCHES "address")  # as for perf.processes
    set_tests_properties(perf.cuda_group perf.cuda_processes PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endif()
add_test(NAME perf.cuda_info
  COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/cuda_info_test.py $<TARGET_FILE:onebit_info>
    $<TARGET_FILE:onebit_cuda_stand_in>)
list(APPEND cuda_tests perf.cuda_info)
if(TARGET codec_perf AND NOT ONEBIT_SANITIZE)
  add_test(NAME perf.cuda_codec
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/cuda_codec_perf_test.py $<TARGET_FILE:codec_perf>
      $<TARGET_FILE:onebit_cuda_stand_in>)
  list(APPEND cuda_tests perf.cuda_codec)
endif()
set_tests_properties(${cuda_tests} PROPERTIES LABELS ranks TIMEOUT 300)
