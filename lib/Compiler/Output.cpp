// Checks where an artifact may be written.

#include "Output.h"

#include "cleave/Support/Errors.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::compiler {

/// Reports a folder that cannot be written to, before anything is compiled.
static LogicalResult requireWritable(const fs::path &folder,
                                     const std::string &advice,
                                     MLIRContext *context) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    return configError(context)
           << folder.string() << ": is no folder; " << advice;
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return configError(context) << folder.string() << ": cannot be written to: "
                                << std::strerror(errno) << "; " << advice;
  return success();
}

LogicalResult checkOutputFolder(const std::string &folder,
                                MLIRContext *context) {
  std::error_code error;
  const char *temporary = std::getenv("TMPDIR");
  if (failed(requireWritable(temporary && *temporary ? temporary : "/tmp",
                             "set TMPDIR to a folder that can be written",
                             context)))
    return failure();
  fs::path parent = fs::absolute(folder).lexically_normal();
  if (!parent.has_filename()) // it ends with a slash
    parent = parent.parent_path();
  do // skips folders that do not exist yet
    parent = parent.parent_path();
  while (!fs::exists(parent, error) && parent.has_relative_path());
  if (failed(requireWritable(parent, "give another output path (-o)", context)))
    return failure();
  if (!fs::exists(folder, error))
    return success();
  if (!fs::is_directory(folder, error))
    return configError(context)
           << folder
           << ": exists and is no folder; give another output path (-o)";
  auto holds = [&](const char *file) {
    return fs::exists(fs::path(folder) / file, error);
  };
  // A manifest.json alone does not identify an artifact, because folders of
  // other software may have one, too.
  if (!fs::is_empty(folder, error) &&
      !(holds("manifest.json") && holds("program.bin")))
    return configError(context) << folder
                                << ": the folder exists and is no compiled "
                                   "program; give another output path (-o)";
  return success();
}

} // namespace cleave::compiler
