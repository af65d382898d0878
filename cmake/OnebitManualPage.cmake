# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# cmake -DHELP2MAN= -DEMULATOR= -DPROGRAM= -DNAME= -DTITLE= -DVERSION= -DPAGE= -P OnebitManualPage.cmake
# The manual page of a program that is installed as NAME: a link of that name is run, because programs tell their
# help by the name that they were started by.
cmake_path(GET PAGE PARENT_PATH folder)
file(MAKE_DIRECTORY ${folder})
file(CREATE_LINK ${PROGRAM} ${folder}/${NAME} SYMBOLIC)
list(APPEND EMULATOR ${folder}/${NAME})
list(JOIN EMULATOR " " command)
execute_process(
  COMMAND ${HELP2MAN} --no-info --no-discard-stderr --section 1 --manual "User Commands" --source "onebit ${VERSION}"
    --version-string ${VERSION} --name ${TITLE} --output ${PAGE} ${command}
  RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "help2man cannot make the manual page of ${NAME}: ${errors}")
endif()
