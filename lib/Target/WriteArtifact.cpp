// The folder of a compiled program.

#include "Emit.h"

#include "cleave/program_io.h"

#include "cleave/Target/Target.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <unistd.h>

using namespace mlir;
using namespace cleave;

namespace {
/// A folder beside the final one, removed unless it is renamed.
struct TemporaryFolder {
  explicit TemporaryFolder(StringRef final) {
    SmallString<256> parent(final), name;
    while (!parent.empty() && llvm::sys::path::is_separator(parent.back()))
      parent.pop_back();
    target = parent.str().str();
    name = llvm::sys::path::filename(parent);
    llvm::sys::path::remove_filename(parent);
    llvm::sys::path::append(parent,
                            "." + name + ".tmp-" + std::to_string(::getpid()));
    path = parent.str().str();
  }
  ~TemporaryFolder() {
    if (!renamed)
      llvm::sys::fs::remove_directories(path);
  }
  std::string file(StringRef name) const { return path + "/" + name.str(); }

  std::string path, target;
  bool renamed = false;
};
} // namespace

static LogicalResult writeFile(Operation *where, const std::string &path,
                               StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (!error) {
    file << bytes;
    file.close();
    error = file.error();
    file.clear_error();
  }
  if (error)
    return where->emitError("'")
           << path << "' cannot be written: " << error.message();
  return success();
}

/// What a reader checks the file against.
static ManifestFile fileOf(StringRef name, StringRef bytes) {
  return {name.str(), static_cast<int64_t>(bytes.size()), digestOf(bytes)};
}

LogicalResult target::writeArtifact(ModuleOp module,
                                    const program::Program &program,
                                    const ManifestInfo &info,
                                    const KernelOptions &options,
                                    StringRef folder) {
  FailureOr<Manifest> manifest = emitManifest(module, info);
  if (failed(manifest))
    return failure();
  TemporaryFolder temporary(folder);
  if (std::error_code error = llvm::sys::fs::create_directories(temporary.path))
    return module.emitError("folder '")
           << temporary.path << "' cannot be made: " << error.message();
  FailureOr<std::vector<std::string>> kernels =
      writeKernels(module, program, options, temporary.path);
  if (failed(kernels))
    return failure();
  std::string bytes = program::serialize(program);
  manifest->files.push_back(fileOf("program.bin", bytes));
  for (const std::string &name : *kernels) {
    auto text = llvm::MemoryBuffer::getFile(temporary.file(name));
    if (!text)
      return module.emitError("'")
             << temporary.file(name)
             << "' cannot be read: " << text.getError().message();
    manifest->files.push_back(fileOf(name, (*text)->getBuffer()));
  }
  if (failed(writeFile(module, temporary.file("program.bin"), bytes)) ||
      failed(writeFile(module, temporary.file("manifest.json"),
                       manifestToJson(*manifest))))
    return failure();
  // Only a folder that is an artifact itself is replaced.
  if (llvm::sys::fs::exists(temporary.target)) {
    bool empty = true;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(temporary.target, error), end;
         it != end && !error; it.increment(error))
      empty = false;
    if (!empty &&
        !(llvm::sys::fs::exists(temporary.target + "/manifest.json") &&
          llvm::sys::fs::exists(temporary.target + "/program.bin")))
      return module.emitError("'")
             << temporary.target
             << "' exists and is no compiled program; choose another folder";
    llvm::sys::fs::remove_directories(temporary.target);
  }
  if (std::error_code error =
          llvm::sys::fs::rename(temporary.path, temporary.target))
    return module.emitError("'")
           << temporary.target << "' cannot be written: " << error.message();
  temporary.renamed = true;
  return success();
}
