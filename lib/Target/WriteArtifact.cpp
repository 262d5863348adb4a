// Writes the folder of a compiled program.

#include "Emit.h"

#include "cleave/io/Digest.h"
#include "cleave/io/Temporary.h"
#include "cleave/io/Weights.h"
#include "cleave/io/WriteError.h"
#include "cleave/program_io.h"

#include "cleave/Target/Target.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <unistd.h>

using namespace mlir;
using namespace cleave;

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
    return where->emitError() << writeError(path, error);
  return success();
}

/// Returns the size and the digest of a file, which readers verify.
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
  recordWeights(*manifest);
  while (folder.size() > 1 && llvm::sys::path::is_separator(folder.back()))
    folder = folder.drop_back();
  std::string target = folder.str();
  TemporaryPath temporary(temporaryNameOf(target, "tmp"));
  auto file = [&](StringRef name) {
    return temporary.path() + "/" + name.str();
  };
  // Removes temporary folders of processes that were killed while they wrote
  // this program.
  removeAbandoned(llvm::sys::path::parent_path(target).str(),
                  llvm::sys::path::filename(target).str());
  // LLVM's create_directories is not used, because it would create a folder
  // without permissions for other users.
  std::error_code made;
  std::filesystem::create_directories(temporary.path(), made);
  if (made)
    return module.emitError("folder '")
           << temporary.path() << "' cannot be made: " << made.message();
  temporary.guard();
  FailureOr<std::vector<std::string>> kernels =
      writeKernels(module, program, options, temporary.path());
  if (failed(kernels))
    return failure();
  std::string bytes = program::serialize(program);
  manifest->files.push_back(fileOf("program.bin", bytes));
  for (const std::string &name : *kernels) {
    auto text = llvm::MemoryBuffer::getFile(file(name));
    if (!text)
      return module.emitError("'")
             << file(name) << "' cannot be read: " << text.getError().message();
    manifest->files.push_back(fileOf(name, (*text)->getBuffer()));
  }
  if (failed(writeFile(module, file("program.bin"), bytes)) ||
      failed(
          writeFile(module, file("manifest.json"), manifestToJson(*manifest))))
    return failure();
  // An existing folder is replaced only if it is an artifact.
  if (llvm::sys::fs::exists(target)) {
    bool empty = true;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(target, error), end;
         it != end && !error; it.increment(error))
      empty = false;
    if (!empty && !(llvm::sys::fs::exists(target + "/manifest.json") &&
                    llvm::sys::fs::exists(target + "/program.bin")))
      return module.emitError("'")
             << target
             << "' exists and is no compiled program; choose another folder";
    llvm::sys::fs::remove_directories(target);
  }
  temporary.unguard();
  if (std::error_code error = llvm::sys::fs::rename(temporary.path(), target))
    return module.emitError("'")
           << target << "' cannot be written: " << error.message();
  temporary.keep();
  return success();
}
