// A loaded program with its kernels: the object that a cleave_program handle
// points to.
#ifndef CLEAVE_RUNTIME_LOADED_PROGRAM_H
#define CLEAVE_RUNTIME_LOADED_PROGRAM_H

#include "cleave/program.h"
#include "cleave/runtime.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

struct cleave_program {
  cleave::program::Program data;
  std::map<std::string, cleave_kernel, std::less<>> added;
  void *library = nullptr; // of dlopen
  std::string libraryPath; // path of kernels.so; for a device: its folder
  // The kernel images of a device program by file name, in a process that
  // received the program from the host. libraryPath is then the path of
  // kernels.so, if there is one.
  std::map<std::string, std::string> images;
  std::vector<cleave_kernel> kernels; // by kernel index, once bound
  // `entries`: for each buffer name, the indices of all its boundary entries.
  // `names`: for each buffer name, the index of its first boundary entry, in
  // the order of the boundary table.
  std::map<std::string, std::vector<int32_t>, std::less<>> entries;
  std::vector<int32_t> names;
  bool isLost = false; // an abandoned thread still runs its kernels

  cleave_program() = default;
  cleave_program(const cleave_program &) = delete;
  ~cleave_program();

  // Resolves all kernels. Throws BAD_PROGRAM that names the missing ones.
  void bindKernels();
};

namespace cleave {

// Throws unless the indices, sizes and names in the program are consistent. The
// addresses of commands are checked when a session prepares them.
void checkStructure(const program::Program &program);

// Returns the files with the program's kernels by name, to be sent to other
// processes.
std::map<std::string, std::string> kernelFiles(const cleave_program &program);

std::unique_ptr<cleave_program> parseProgram(std::string_view bytes);
std::unique_ptr<cleave_program> loadProgram(const std::string &dir);

} // namespace cleave

#endif // CLEAVE_RUNTIME_LOADED_PROGRAM_H
