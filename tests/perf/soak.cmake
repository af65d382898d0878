# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Tests of the soak, and a short soak over each transport; sanitizers are slower, and keep what is freed.

add_executable(soak_parts_test soak_model_test.cc soak_plan_test.cc)
add_executable(soak_run_test soak_run_test.cc)
foreach(target soak_parts_test soak_run_test)
  onebit_configure_target(${target})
  target_link_libraries(${target} PRIVATE onebit_soak GTest::gmock GTest::gtest_main)
endforeach()
onebit_discover_tests(soak_parts_test PROPERTIES LABELS fast)
onebit_discover_tests(soak_run_test PROPERTIES LABELS ranks TIMEOUT 120)

set(soak_ways local socket)
set(soak_ranks_local -t 4)
set(soak_ranks_socket --procs 4)
set(soak_tests perf.soak_tool)
add_test(NAME perf.soak_tool
  COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/soak_tool_test.py $<TARGET_FILE:soak> ${soak_ways})
set(soak_options --seconds 10 --deadline 30)
if(ONEBIT_SANITIZE)
  set(soak_options --seconds 10 --deadline 60 --max-elements 32K --allow-growth)
endif()
foreach(way IN LISTS soak_ways)
  add_test(NAME perf.soak_${way}
    COMMAND soak --seed 1 ${soak_ranks_${way}} ${soak_options})
  list(APPEND soak_tests perf.soak_${way})
endforeach()
set_tests_properties(${soak_tests} PROPERTIES LABELS ranks RESOURCE_LOCK machine COST 1000 TIMEOUT 150)
