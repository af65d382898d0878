# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# The comparison with other systems, its report, its baselines, and the replay of published results.

# The charts need matplotlib, which may be that of the system's python3 only.
set(interpreter ${Python3_EXECUTABLE})
execute_process(COMMAND ${interpreter} -c "import matplotlib" OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE result)
if(NOT result EQUAL 0 AND EXISTS /usr/bin/python3)
  set(interpreter /usr/bin/python3)
endif()
foreach(part limits comparison tables page program)
  add_test(NAME studies.report_${part}
    COMMAND ${interpreter} -B ${CMAKE_CURRENT_SOURCE_DIR}/report_${part}_test.py)
  set_tests_properties(studies.report_${part} PROPERTIES LABELS fast SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME studies.report_browser
  COMMAND ${interpreter} -B ${CMAKE_CURRENT_SOURCE_DIR}/report_browser_test.py)
set_tests_properties(studies.report_browser PROPERTIES LABELS ranks SKIP_RETURN_CODE 77)

# The plan, the command with tools that fail, and the comparison of what this build has.
add_test(NAME studies.compare_plan
  COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/compare_plan_test.py ${PROJECT_SOURCE_DIR})
set_tests_properties(studies.compare_plan PROPERTIES LABELS fast)
set(launcher_in_path "PATH=path_list_prepend:$<TARGET_FILE_DIR:onebit_run>")
foreach(what fakes shm lab)
  add_test(NAME studies.compare_${what}
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/compare_test.py
      ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${what})
  set_tests_properties(studies.compare_${what} PROPERTIES LABELS ranks TIMEOUT 180 SKIP_RETURN_CODE 77
    ENVIRONMENT_MODIFICATION "${launcher_in_path}")
endforeach()

# Baselines that this configuration has.
add_executable(baseline_checks_test baseline_checks_test.cc)
onebit_configure_target(baseline_checks_test)
target_link_libraries(baseline_checks_test PRIVATE onebit_multi_pass GTest::gmock GTest::gtest_main)
onebit_discover_tests(baseline_checks_test PROPERTIES LABELS ranks)
set(baselines "")
foreach(baseline openmpi mpich gloo multipass)
  if(TARGET allreduce_${baseline})
    list(APPEND baselines $<TARGET_FILE:allreduce_${baseline}>)
  endif()
endforeach()
if(baselines)
  add_test(NAME studies.baseline_programs
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/baseline_programs_test.py
      $<TARGET_FILE:onebit_run> ${baselines})
  set_tests_properties(studies.baseline_programs PROPERTIES LABELS ranks SKIP_RETURN_CODE 77)
endif()

# It measures time.
if(TARGET onebit_python)
  add_test(NAME studies.replay
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/replay_test.py ${PROJECT_BINARY_DIR})
  set_tests_properties(studies.replay PROPERTIES
    LABELS ranks RESOURCE_LOCK network COST 1000 SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT_MODIFICATION "${launcher_in_path}")
endif()
