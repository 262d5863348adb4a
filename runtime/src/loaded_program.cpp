// Reads a program and binds its kernels.

#include "loaded_program.h"

#include "cleave/io/Input.h"
#include "cleave/program_io.h"

#include "error.h"

#include <dlfcn.h>
#include <filesystem>
#include <sys/statvfs.h>

using namespace cleave;
using namespace cleave::program;

namespace {
[[noreturn]] void bad(const std::string &message) {
  fail(CLEAVE_BAD_PROGRAM, message);
}

/// Explains a failure to load a library from a file system that is mounted
/// noexec.
std::string whyNotExecutable(const std::string &path) {
  struct statvfs system{};
  if (statvfs(path.c_str(), &system) != 0 || !(system.f_flag & ST_NOEXEC))
    return "";
  return "; its file system is mounted noexec: keep programs on another one "
         "(--cache DIR; of an executable that carries its program, TMPDIR)";
}
} // namespace

cleave_program::~cleave_program() {
  if (library)
    dlclose(library);
}

void cleave_program::bindKernels() {
  // Kernels of a device are loaded elsewhere (cuda/program_module.h).
  if (data.device != Device::Cpu || data.kernels.empty() || !kernels.empty())
    return;
  if (!libraryPath.empty() && !library) {
    library = dlopen(libraryPath.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      bad(std::string("cannot load the kernels: ") + dlerror() +
          whyNotExecutable(libraryPath));
  }
  std::vector<cleave_kernel> bound;
  std::string missing;
  for (const Kernel &kernel : data.kernels) {
    void *address = nullptr;
    if (auto it = added.find(kernel.symbol); it != added.end())
      address = reinterpret_cast<void *>(it->second);
    else if (library)
      address = dlsym(library, kernel.symbol.c_str());
    if (!address)
      missing += (missing.empty() ? "" : ", ") + kernel.symbol;
    bound.push_back(reinterpret_cast<cleave_kernel>(address));
  }
  if (!missing.empty())
    bad("kernels not found in " +
        (libraryPath.empty() ? "the process" : libraryPath) + ": " + missing);
  kernels = std::move(bound);
}

std::map<std::string, std::string>
cleave::kernelFiles(const cleave_program &program) {
  std::map<std::string, std::string> files;
  if (program.data.kernels.empty())
    return files;
  if (!program.added.empty())
    fail(CLEAVE_UNSUPPORTED, "kernels that are linked into the executable "
                             "cannot be sent to other processes");
  auto add = [&](const std::filesystem::path &path, const std::string &name) {
    std::string &bytes = files[name], reason = "it is empty";
    if (!readInput(path, bytes, reason) || bytes.empty())
      bad(path.string() + ": cannot be read: " + reason);
  };
  if (program.data.device == Device::Cpu) {
    add(program.libraryPath, "kernels.so");
    return files;
  }
  std::error_code error;
  std::filesystem::directory_iterator found(program.libraryPath, error), end;
  for (; !error && found != end; found.increment(error))
    if (std::string name = found->path().filename().string();
        name.starts_with("kernels."))
      add(found->path(), name);
  return files;
}

std::unique_ptr<cleave_program> cleave::parseProgram(std::string_view bytes) {
  auto program = std::make_unique<cleave_program>();
  std::string error;
  if (!deserialize(bytes, program->data, error))
    bad(error);
  checkStructure(program->data);
  const std::vector<Boundary> &boundary = program->data.boundary;
  for (size_t i = 0; i < boundary.size(); ++i) {
    auto [entry, isNew] = program->entries.try_emplace(boundary[i].name);
    entry->second.push_back(static_cast<int32_t>(i));
    if (isNew)
      program->names.push_back(static_cast<int32_t>(i));
  }
  return program;
}

std::unique_ptr<cleave_program> cleave::loadProgram(const std::string &dir) {
  std::string path = dir + "/program.bin";
  std::string bytes, reason;
  if (!readInput(path, bytes, reason))
    bad(path + ": cannot be read: " + reason);
  std::unique_ptr<cleave_program> program;
  try {
    program = parseProgram(bytes);
  } catch (const RuntimeError &error) {
    throw RuntimeError(error.status, path + ": " + error.what());
  }
  // A path with a slash keeps dlopen from searching the system's library
  // folders.
  program->libraryPath = dir.empty() ? "." : dir;
  if (program->data.device == Device::Cpu)
    program->libraryPath += "/kernels.so";
  return program;
}
