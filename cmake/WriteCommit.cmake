# Writes OUTPUT, a header with the commit of the folder SOURCE: "" where that is
# no git checkout, "-dirty" after it where files differ from it. A header that
# says so already is left alone, so that nothing is compiled again.
cmake_minimum_required(VERSION 3.25)

set(commit "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=12 --exclude=*
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit RESULT_VARIABLE failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # A folder inside another checkout is not what that commit holds.
  execute_process(COMMAND ${GIT} rev-parse --show-cdup WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE above OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed OR above)
    set(commit "")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define CLEAVE_COMMIT \"@commit@\"\n" @ONLY)
