# Flags that all targets share. Warnings are errors only in CI, so that a new
# compiler never stops a user's build.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  # Precompiled headers are cached only if ccache is told that their macros and
  # times do not matter. What a file includes it learns from the compiler: to run
  # the preprocessor first would add a third to every file that is not cached.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# lld is fast; a machine that only runs programs on a device need not have it.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=lld CLEAVE_HAS_LLD)
if(CLEAVE_HAS_LLD)
  add_link_options(-fuse-ld=lld)
endif()
add_compile_options(-Wall -Wextra -Wno-unused-parameter -fno-strict-aliasing)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-fcolor-diagnostics -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
endif()

if(CLEAVE_SANITIZE)
  add_compile_options(-fsanitize=${CLEAVE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CLEAVE_SANITIZE})
endif()
