// Binds inputs to arrays that the user provides; otherwise the configuration
// says how their values are generated. The array readers throw exceptions,
// which are converted to diagnostics here.

#include "cleave/Compiler/Import.h"

#include "cleave/Support/Errors.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Npy.h"

#include "llvm/ADT/StringExtras.h"

#include <filesystem>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::compiler {

static LogicalResult bind(Config &config, const std::string &model,
                          const std::string &arrays, MLIRContext &context) {
  NpzReader given(arrays);
  auto bind = [&](const std::string &name) {
    if (auto found = config.data.inputs.find(name);
        found != config.data.inputs.end() && given.has(name))
      found->second = name;
  };
  if (StringRef(model).ends_with(".mlir")) {
    for (const std::string &name : given.names())
      bind(name);
    return success();
  }
  FailureOr<FileSummary> file = summarizeOnnx(model, context, limitsOf(config));
  if (failed(file))
    return failure();
  std::vector<std::string> inputs;
  for (const TensorSummary &input : file->inputs)
    inputs.push_back(input.name);
  // Labels are an input of the training program, not of the model's graph.
  const std::string &labels = config.data.labels;
  for (const std::string &name : given.names())
    if (!llvm::is_contained(inputs, name) && name != "labels" && name != labels)
      throw InputError(arrays + ": array '" + name +
                       "' is no input of the model; did you mean '" +
                       nearest(name, inputs, true).value_or("") +
                       "'? The inputs are " + llvm::join(inputs, ", "));
  for (const auto &[name, value] : config.data.bind)
    if (given.has(name))
      throw InputError(arrays + ": has an array '" + name +
                       "', an input that data.bind (--bind) gives one value; "
                       "leave one of them out");
  const auto asked = config.dims;
  for (const TensorSummary &input : file->inputs) {
    bind(input.name);
    if (!given.has(input.name))
      continue;
    std::vector<int64_t> sizes = given.read(input.name).shape;
    if (sizes.size() != input.shape.size()) {
      std::vector<std::string> expected = input.shape;
      for (std::string &dim : expected) // replace names by sizes that are known
        if (auto size = asked.find(dim); size != asked.end())
          dim = std::to_string(size->second);
      throw InputError(arrays + ", array '" + input.name + "': has shape " +
                       shapeToString(sizes) + ", expected [" +
                       llvm::join(expected, ", ") + "]");
    }
    for (auto [index, dim] : llvm::enumerate(input.shape)) {
      bool isTokens = input.shape.size() == 2 &&
                      (input.type == "i64" || input.type == "i32");
      // If dims.batch or dims.sequence is set, the corresponding dimension is
      // not taken from the array, because the array may have any number of
      // samples: the program is then called several times.
      const char *general = index == 0               ? "batch"
                            : index == 1 && isTokens ? "sequence"
                                                     : "";
      if (isDimensionName(dim) && !asked.count(general))
        config.dims.emplace(dim, sizes[index]);
    }
  }
  return success();
}

LogicalResult bindGivenInputs(Config &config, const std::string &model,
                              const std::string &arrays, MLIRContext &context) {
  try {
    return bind(config, model, arrays, context);
  } catch (const Error &error) {
    return report(&context, error);
  }
}

/// Returns the names of the arrays of an .npz file or a folder of .npy files.
static std::vector<std::string> arraysOf(const std::string &data) {
  std::error_code error;
  if (fs::path(data).extension() == ".npz")
    return NpzReader(data).names();
  std::vector<std::string> names;
  for (fs::directory_iterator at(data, error), end; !error && at != end;
       at.increment(error))
    if (at->path().extension() == ".npy")
      names.push_back(escaped(at->path().stem().string()));
  return names;
}

LogicalResult bindDataInputs(LoadedConfig &loaded, const std::string &model,
                             const std::string &data, MLIRContext &context) {
  std::vector<std::string> found;
  try {
    for (const std::string &name : arraysOf(data))
      if (loaded.config.data.inputs.count(name) &&
          !loaded.origins.count("data.inputs." + name))
        found.push_back(name);
  } catch (const Error &error) {
    return report(&context, error);
  }
  if (found.empty() || StringRef(model).ends_with(".mlir"))
    return success();
  FailureOr<FileSummary> file =
      summarizeOnnx(model, context, limitsOf(loaded.config));
  if (failed(file))
    return failure();
  for (const TensorSummary &input : file->inputs)
    if (llvm::is_contained(found, input.name))
      loaded.config.data.inputs[input.name] = input.name;
  return success();
}

} // namespace cleave::compiler
