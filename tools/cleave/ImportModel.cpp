// From a model file and a configuration to nn IR.

#include "ImportModel.h"

#include "cleave/Compiler/Dialects.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Pattern.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

#include <charconv>
#include <filesystem>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::driver {

void registerAll(MLIRContext &context) { compiler::loadDialects(context); }

static BoundInput boundInput(const std::string &name,
                             const std::string &value) {
  BoundInput bound;
  bound.text = value;
  if (value.ends_with(".npy")) {
    try {
      Array array = readNpy(value);
      bound.dtype = array.dtype;
      bound.shape = array.shape;
      bound.bytes.assign(reinterpret_cast<const char *>(array.bytes.data()),
                         array.bytes.size());
      return bound;
    } catch (const Error &error) {
      throw Failure(BadUsage, "--bind " + name + ": " + error.what());
    }
  }
  bound.isNumber = true;
  std::string text = value == "true" ? "1" : value == "false" ? "0" : value;
  int64_t integer = 0;
  const char *end = text.data() + text.size();
  auto [last, error] = std::from_chars(text.data(), end, integer);
  auto [lastOfNumber, numberError] =
      std::from_chars(text.data(), end, bound.number);
  if ((last == end && error != std::errc()) || numberError != std::errc())
    throw Failure(BadUsage, "--bind " + name + "=" + value +
                                ": the number is out of range");
  if (last == end)
    bound.integer = integer;
  return bound;
}

/// Names with special characters can be spelled out only with these escaped.
static std::string unescaped(StringRef pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i)
    name += pattern[i] == '\\' && i + 1 < pattern.size() ? pattern[++i]
                                                         : pattern[i];
  return name;
}

ImportOptions limitsOf(const Config &config) {
  ImportOptions options;
  options.limits = {config.importing.evaluatedElements,
                    config.importing.inlinedNodes};
  return options;
}

ImportOptions importOptions(const Config &config, std::optional<int64_t> batch,
                            bool requireData) {
  ImportOptions options;
  options.dims = config.dims;
  if (batch)
    options.dims["batch"] = *batch;
  options.tokens = config.data.tokens;
  if (config.data.labels != "next")
    options.labels = config.data.labels;
  for (const auto &[name, source] : config.data.inputs)
    options.inputs[name] = source == "ones"     ? InputBinding::Ones
                           : source == "zeros"  ? InputBinding::Zeros
                           : source == "arange" ? InputBinding::Arange
                                                : InputBinding::Data;
  for (const auto &[name, value] : config.data.bind)
    options.bound[name] = boundInput(name, value);
  options.microbatches = config.train.microbatches;
  options.requireData = requireData;
  options.limits = limitsOf(config).limits;
  options.trainable.insert(config.train.trainable.begin(),
                           config.train.trainable.end());
  for (const std::string &pattern : config.train.trainable)
    if (std::string name = unescaped(pattern); escapePattern(name) == pattern)
      options.trainable.insert(name);
  options.untie = config.train.untie;
  auto matchesOne = [](const std::vector<std::string> &patterns,
                       StringRef name) {
    return llvm::any_of(patterns, [&](const std::string &pattern) {
      return matchesPattern(pattern, name);
    });
  };
  options.isFrozen = [train = config.train, matchesOne](StringRef name) {
    return matchesOne(train.frozen, name) ||
           (!train.trainable.empty() && !matchesOne(train.trainable, name));
  };
  options.keepBuffers = config.parallel.expert.biasUpdate > 0;
  return options;
}

void protectInputs(const std::string &output, const std::string &model,
                   const CommonOptions &options, const Config &config) {
  std::error_code error;
  if (!fs::exists(output, error))
    return;
  std::vector<std::string> inputs = {model,
                                     options.configFile,
                                     config.data.path,
                                     config.data.evalPath,
                                     config.parallel.pipeline.table,
                                     config.target.cluster};
  for (const auto &[name, value] : config.data.bind)
    inputs.push_back(value);
  if (!StringRef(model).ends_with(".mlir")) {
    MLIRContext context;
    Diagnostics diagnostics(context); // told when the model is read
    auto files = externalFilesOf(model, context, limitsOf(config));
    if (succeeded(files))
      for (const std::string &file : *files)
        inputs.push_back((fs::path(model).parent_path() / file).string());
  }
  refuseToReplace(output, inputs);
}

static FileSummary summaryOf(const std::string &model, const Config &config) {
  MLIRContext context;
  Diagnostics diagnostics(context);
  FailureOr<FileSummary> file = summarizeOnnx(model, context, limitsOf(config));
  if (failed(file))
    diagnostics.fail(BadUsage);
  return std::move(*file);
}

void bindGivenInputs(Config &config, const std::string &model,
                     const std::string &arrays) {
  NpzReader given(arrays);
  auto bind = [&](const std::string &name) {
    if (auto found = config.data.inputs.find(name);
        found != config.data.inputs.end() && given.has(name))
      found->second = name;
  };
  if (StringRef(model).ends_with(".mlir")) {
    for (const std::string &name : given.names())
      bind(name);
    return;
  }
  FileSummary file = summaryOf(model, config);
  std::vector<std::string> inputs;
  for (const TensorSummary &input : file.inputs)
    inputs.push_back(input.name);
  // Labels are no input of the graph, but of its training.
  const std::string &labels = config.data.labels;
  for (const std::string &name : given.names())
    if (!llvm::is_contained(inputs, name) && name != "labels" && name != labels)
      throw Failure(BadUsage, arrays + ": array '" + name +
                                  "' is no input of the model; did you mean '" +
                                  nearest(name, inputs, true).value_or("") +
                                  "'? The inputs are " +
                                  llvm::join(inputs, ", "));
  for (const auto &[name, value] : config.data.bind)
    if (given.has(name))
      throw Failure(BadUsage, arrays + ": has an array '" + name +
                                  "', an input that --bind gives one value; "
                                  "leave one of them out");
  const auto asked = config.dims;
  for (const TensorSummary &input : file.inputs) {
    bind(input.name);
    if (!given.has(input.name))
      continue;
    std::vector<int64_t> sizes = given.read(input.name).shape;
    if (sizes.size() != input.shape.size()) {
      std::vector<std::string> expected = input.shape;
      for (std::string &dim : expected) // sizes, as far as they are known
        if (auto size = asked.find(dim); size != asked.end())
          dim = std::to_string(size->second);
      throw Failure(BadUsage, arrays + ", array '" + input.name +
                                  "': has shape " + shapeToString(sizes) +
                                  ", expected [" + llvm::join(expected, ", ") +
                                  "]");
    }
    for (auto [index, dim] : llvm::enumerate(input.shape)) {
      bool isTokens = input.shape.size() == 2 &&
                      (input.type == "i64" || input.type == "i32");
      // Any number of samples goes through a program for a batch.
      const char *general = index == 0               ? "batch"
                            : index == 1 && isTokens ? "sequence"
                                                     : "";
      if (isDimensionName(dim) && !asked.count(general))
        config.dims.emplace(dim, sizes[index]);
    }
  }
}

/// The names of the arrays of an .npz file or a folder of .npy files.
static std::vector<std::string> arraysOf(const std::string &data) {
  std::error_code error;
  if (fs::path(data).extension() == ".npz") {
    try {
      return NpzReader(data).names();
    } catch (const Error &wrong) {
      throw Failure(ExitCode(int(wrong.code)), wrong.what());
    }
  }
  std::vector<std::string> names;
  for (fs::directory_iterator at(data, error), end; !error && at != end;
       at.increment(error))
    if (at->path().extension() == ".npy")
      names.push_back(escaped(at->path().stem().string()));
  return names;
}

void bindDataInputs(LoadedConfig &loaded, const std::string &model,
                    const std::string &data) {
  std::vector<std::string> found;
  for (const std::string &name : arraysOf(data))
    if (loaded.config.data.inputs.count(name) &&
        !loaded.origins.count("data.inputs." + name))
      found.push_back(name);
  if (found.empty() || StringRef(model).ends_with(".mlir"))
    return;
  FileSummary file = summaryOf(model, loaded.config);
  for (const TensorSummary &input : file.inputs)
    if (llvm::is_contained(found, input.name))
      loaded.config.data.inputs[input.name] = input.name;
}

OwningOpRef<ModuleOp> importModel(const std::string &path, const Config &config,
                                  MLIRContext &context,
                                  std::optional<int64_t> batch,
                                  bool readWeights, bool isQuiet) {
  Diagnostics diagnostics(context);
  std::optional<ScopedDiagnosticHandler> quiet;
  if (isQuiet)
    quiet.emplace(&context, [](Diagnostic &diagnostic) {
      return success(diagnostic.getSeverity() != DiagnosticSeverity::Error);
    });
  ImportOptions options = importOptions(config, batch, readWeights);
  FailureOr<std::vector<Tie>> ties =
      declaredTies(path, config.train.tie, context, options);
  if (failed(ties))
    diagnostics.fail(BadUsage);
  options.ties = *ties;
  // By every command alike: what is one parameter here is one everywhere.
  FailureOr<std::vector<Tie>> found = findTiesByContent(path, context, options);
  if (failed(found))
    diagnostics.fail(BadUsage);
  for (const Tie &tie : *found) {
    options.ties.push_back(tie);
    // Copies that were meant to part would be trained as one.
    emitWarning(NameLoc::get(StringAttr::get(&context, path)))
        << "'" << tie.copy << "' holds the elements of the table '"
        << tie.primary << "'" << (tie.transposed ? ", transposed," : "")
        << " and scores its rows: they are tied, one parameter, as train.tie = "
           "[[\""
        << tie.primary << "\", \"" << tie.copy << "\"]] says; train.untie = ["
        << quotedPattern(tie.copy) << "] keeps them apart";
  }
  OwningOpRef<ModuleOp> module = importOnnx(path, options, context);
  if (!module)
    diagnostics.fail(BadUsage);
  PassManager passes(&context);
  buildImportPipeline(passes);
  if (failed(passes.run(*module)))
    diagnostics.fail(BadUsage, path + ": ");
  return module;
}

} // namespace cleave::driver
