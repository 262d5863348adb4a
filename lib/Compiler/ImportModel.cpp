// Imports an ONNX file, with the options of a configuration, to nn IR.

#include "cleave/Compiler/Import.h"

#include "Files.h"

#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"
#include "cleave/io/Pattern.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

#include <charconv>
#include <filesystem>

using namespace mlir;
namespace fs = std::filesystem;

namespace cleave::compiler {

static FailureOr<BoundInput> boundInput(MLIRContext *context,
                                        const std::string &name,
                                        const std::string &value) {
  BoundInput bound;
  bound.text = value;
  if (value.ends_with(".npy")) {
    FailureOr<Array> array =
        readArray(context, value, "data.bind." + name + " (--bind): ");
    if (failed(array))
      return failure();
    bound.dtype = array->dtype;
    bound.shape = array->shape;
    bound.bytes.assign(reinterpret_cast<const char *>(array->bytes.data()),
                       array->bytes.size());
    return bound;
  }
  bound.isNumber = true;
  std::string text = value == "true" ? "1" : value == "false" ? "0" : value;
  int64_t integer = 0;
  const char *end = text.data() + text.size();
  auto [last, error] = std::from_chars(text.data(), end, integer);
  auto [lastOfNumber, numberError] =
      std::from_chars(text.data(), end, bound.number);
  if ((last == end && error != std::errc()) || numberError != std::errc())
    return configError(context) << "data.bind." << name << " = " << value
                                << " (--bind): the number is out of range";
  if (last == end)
    bound.integer = integer;
  return bound;
}

/// Removes the backslashes that escape special characters in a pattern.
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

FailureOr<ImportOptions> importOptions(const Config &config,
                                       MLIRContext *context,
                                       std::optional<int64_t> batch,
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
  for (const auto &[name, value] : config.data.bind) {
    FailureOr<BoundInput> bound = boundInput(context, name, value);
    if (failed(bound))
      return failure();
    options.bound[name] = std::move(*bound);
  }
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

FailureOr<std::vector<std::string>> filesOfModel(const std::string &path,
                                                 const Config &config,
                                                 MLIRContext &context) {
  std::vector<std::string> files = {path};
  if (StringRef(path).ends_with(".mlir"))
    return files;
  FailureOr<std::vector<std::string>> external =
      externalFilesOf(path, context, limitsOf(config));
  if (failed(external))
    return failure();
  for (const std::string &file : *external)
    files.push_back((fs::path(path).parent_path() / file).string());
  return files;
}

/// Finds tied parameters: those that the configuration or the file declares,
/// and weights that have the same elements as another one (such as an output
/// layer and its embedding).
static LogicalResult findTies(const std::string &path, const Config &config,
                              MLIRContext &context, ImportOptions &options) {
  FailureOr<std::vector<Tie>> ties =
      declaredTies(path, config.train.tie, context, options);
  if (failed(ties))
    return failure();
  options.ties = *ties;
  // All commands of `cleave` also search for equal weights, so that they agree
  // on which parameters are tied.
  FailureOr<std::vector<Tie>> found = findTiesByContent(path, context, options);
  if (failed(found))
    return failure();
  for (const Tie &tie : *found) {
    options.ties.push_back(tie);
    // The tie is reported, because the copies may be meant to be trained as
    // separate parameters.
    emitWarning(NameLoc::get(StringAttr::get(&context, path)))
        << "'" << tie.copy << "' holds the elements of the table '"
        << tie.primary << "'" << (tie.transposed ? ", transposed," : "")
        << " and scores its rows: they are tied, one parameter, as train.tie = "
           "[[\""
        << tie.primary << "\", \"" << tie.copy << "\"]] says; train.untie = ["
        << quotedPattern(tie.copy) << "] keeps them apart";
  }
  return success();
}

/// Runs the passes of the import. Their errors only name a node of the graph,
/// so the name of the model file is added to the message.
static LogicalResult runImportPasses(ModuleOp module, const std::string &path) {
  MLIRContext *context = module.getContext();
  std::string text;
  {
    Messages messages(*context, /*onlyErrors=*/true);
    if (succeeded(runPasses(module, "import", buildImportPipeline)))
      return success();
    text = llvm::join(messages.errors.lines(), "\n");
  }
  return configError(context) << path << ": " << text;
}

FailureOr<OwningOpRef<ModuleOp>>
importModel(const std::string &path, const Config &config, MLIRContext &context,
            std::optional<int64_t> batch, bool readWeights) {
  FailureOr<ImportOptions> options =
      importOptions(config, &context, batch, readWeights);
  if (failed(options) || failed(findTies(path, config, context, *options)))
    return failure();
  OwningOpRef<ModuleOp> module = importOnnx(path, *options, context);
  if (!module || failed(runImportPasses(*module, path)))
    return failure();
  return module;
}

} // namespace cleave::compiler
