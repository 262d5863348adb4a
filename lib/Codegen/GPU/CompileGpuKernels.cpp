// Writes the files of GPU kernels: PTX, and cubins if ptxas is available.

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/io/Temporary.h"
#include "cleave/io/WriteError.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace mlir;
using namespace cleave;

/// The oldest supported architecture. Its PTX runs on all supported devices.
static constexpr llvm::StringLiteral kOldest = "sm_80";

std::optional<std::string> cleave::codegen::findPtxas() {
  if (const char *home = std::getenv("CUDA_HOME")) {
    if (!*home)
      return std::nullopt;
    std::string path = std::string(home) + "/bin/ptxas";
    if (llvm::sys::fs::can_execute(path))
      return path;
  }
  if (auto path = llvm::sys::findProgramByName("ptxas"))
    return *path;
  if (llvm::sys::fs::can_execute(CLEAVE_PTXAS))
    return std::string(CLEAVE_PTXAS);
  return std::nullopt;
}

LogicalResult cleave::codegen::assemblePtx(StringRef ptx, StringRef arch,
                                           StringRef cubinPath, Location loc) {
  std::optional<std::string> ptxas = findPtxas();
  if (!ptxas)
    return emitError(loc,
                     "cannot assemble kernels: no ptxas below CUDA_HOME or "
                     "on the PATH; install the CUDA toolkit");
  std::string reason;
  std::unique_ptr<TemporaryPath> folder =
      makeTemporaryFolder("cleave-kernels", reason);
  if (!folder)
    return emitError(loc, "cannot assemble kernels: ") << reason;
  std::string source = folder->path() + "/kernels.ptx",
              log = folder->path() + "/log";
  std::error_code failed;
  llvm::raw_fd_ostream stream(source, failed);
  if (!failed) {
    stream << ptx;
    stream.close();
    failed = stream.error();
    stream.clear_error(); // else its destructor aborts
  }
  if (failed)
    return emitError(loc, "cannot assemble kernels: ")
           << writeError(source, failed);
  std::string message, target = ("-arch=" + arch).str();
  int status = llvm::sys::ExecuteAndWait(
      *ptxas, {*ptxas, target, "-o", cubinPath, source}, std::nullopt,
      {StringRef(""), StringRef(log), StringRef(log)}, 0, 0, &message);
  if (status != 0)
    if (auto text = llvm::MemoryBuffer::getFile(log))
      message += (*text)->getBuffer().trim().str();
  if (status != 0)
    return emitError(loc, "cannot assemble kernels: ")
           << *ptxas << ": " << message;
  return success();
}

/// Returns the help text of ptxas, which lists the architectures that it
/// supports; "" if ptxas fails.
static std::string helpOf(StringRef ptxas) {
  std::string reason;
  std::unique_ptr<TemporaryPath> folder =
      makeTemporaryFolder("cleave-kernels", reason);
  if (!folder)
    return "";
  std::string log = folder->path() + "/log";
  std::string text;
  int status = llvm::sys::ExecuteAndWait(
      ptxas, {ptxas, "--help"}, std::nullopt,
      {StringRef(""), StringRef(log), StringRef(log)});
  if (auto file = llvm::MemoryBuffer::getFile(log); file && status == 0)
    text = (*file)->getBuffer().str();
  return text;
}

static std::string nameOf(StringRef arch, StringRef kind) {
  return ("kernels." + arch + "." + kind).str();
}

FailureOr<std::vector<std::string>> cleave::codegen::compileGpuKernels(
    ModuleOp module, ArrayRef<std::string> architectures, StringRef folder) {
  std::optional<std::string> ptxas = findPtxas();
  std::string help = ptxas ? helpOf(*ptxas) : "";
  std::vector<std::string> all(architectures.begin(), architectures.end());
  if (!llvm::is_contained(all, kOldest))
    all.insert(all.begin(), kOldest.str());
  auto emitted = emitGpuKernels(module);
  if (failed(emitted))
    return failure();
  auto texts = compileAllToPtx(**emitted, all);
  if (failed(texts))
    return failure();

  auto path = [&](StringRef name) {
    SmallString<128> path(folder);
    llvm::sys::path::append(path, name);
    return path.str().str();
  };
  std::vector<std::string> files, unknown;
  SmallVector<size_t> assembled;
  for (auto [index, arch] : llvm::enumerate(all)) {
    bool isAsked = llvm::is_contained(architectures, arch);
    bool isKnown = StringRef(help).contains("'" + arch + "'");
    if (isAsked && isKnown)
      assembled.push_back(index);
    else if (isAsked)
      unknown.push_back(arch);
    if (arch != kOldest && isKnown)
      continue;
    files.push_back(nameOf(arch, "ptx"));
    std::error_code error;
    llvm::raw_fd_ostream file(path(files.back()), error);
    if (!error) {
      file << (*texts)[index];
      file.close();
      error = file.error();
      file.clear_error(); // else its destructor aborts
    }
    if (error)
      return module.emitError("'")
             << path(files.back())
             << "' cannot be written: " << error.message();
  }
  if (!unknown.empty()) {
    InFlightDiagnostic warning = module.emitWarning(
        ptxas ? "'" + *ptxas + "' does not know "
              : "no ptxas below CUDA_HOME or on the PATH: for ");
    warning
        << llvm::join(unknown, ", ") << (ptxas ? ": for it " : " ")
        << "there is PTX, which the driver compiles when a program is loaded";
  }
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(assembled.size()));
  std::vector<int> failures(all.size());
  for (size_t index : assembled) {
    files.push_back(nameOf(all[index], "cubin"));
    pool.async([&, index, name = path(files.back())] {
      failures[index] = failed(
          assemblePtx((*texts)[index], all[index], name, module.getLoc()));
    });
  }
  pool.wait();
  if (llvm::is_contained(failures, 1))
    return failure();
  return files;
}
