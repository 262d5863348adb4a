// The files of a model.

#include "ModelFiles.h"

#include "Files.h"

#include "cleave/Compiler/Import.h"
#include "cleave/Support/Errors.h"

#include "llvm/ADT/StringExtras.h"

#include <filesystem>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::compiler {

FailureOr<ModelFiles> ModelFiles::note(const std::string &path,
                                       const Config &config,
                                       MLIRContext &context) {
  if (failed(requireFile(&context, path, "a model")))
    return failure();
  FailureOr<std::vector<std::string>> files =
      filesOfModel(path, config, context);
  if (failed(files))
    return failure();
  ModelFiles model;
  model.path = path;
  model.files = std::move(*files);
  model.note();
  return model;
}

std::string ModelFiles::weights() const {
  return llvm::join(ArrayRef(noted).drop_front(), "");
}

LogicalResult ModelFiles::check(MLIRContext *context) {
  std::vector<std::string> before = noted;
  note();
  if (noted == before)
    return success();
  return configError(context) << path
                              << ": has changed while it was compiled, or its "
                                 "weights have; run the command again";
}

void ModelFiles::note() {
  std::error_code error;
  noted.clear();
  for (const std::string &file : files) {
    auto time = fs::last_write_time(file, error).time_since_epoch();
    noted.push_back(fs::absolute(file).string() + ":" +
                    std::to_string(time.count()) + ":" +
                    std::to_string(fs::file_size(file, error)) + ":");
  }
}

} // namespace cleave::compiler
