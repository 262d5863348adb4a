// Wraps file readers that throw exceptions.

#include "Files.h"

#include "cleave/Support/Errors.h"
#include "cleave/io/Input.h"
#include "cleave/io/Npy.h"

#include <filesystem>
#include <unistd.h>

using namespace mlir;

namespace cleave::compiler {

LogicalResult requireFile(MLIRContext *context, const std::string &path,
                          const std::string &wanted) {
  std::string fault = faultOfFile(path, wanted);
  return fault.empty() ? success() : configError(context) << fault;
}

FailureOr<std::string> readFile(MLIRContext *context, const std::string &path) {
  std::string text, reason;
  if (!readInput(path, text, reason))
    return configError(context) << path << ": cannot be read: " << reason;
  return text;
}

FailureOr<Array> readArray(MLIRContext *context, const std::string &path,
                           const std::string &about) {
  try {
    return readNpy(path);
  } catch (const Error &error) {
    return configError(context) << about << error.what();
  }
}

} // namespace cleave::compiler
