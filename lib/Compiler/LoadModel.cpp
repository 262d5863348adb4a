// Loads a model for the phases of the compiler (import, train, shard, kernels,
// schedule, memory). Reports operations, types and sizes that the compiler does
// not support.

#include "cleave/Compiler/Import.h"
#include "cleave/Compiler/Sharded.h"

#include "Files.h"
#include "NnModel.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Dialect/NN/Transforms/VerifyTypes.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/Support/Errors.h"
#include "cleave/Support/Passes.h"
#include "cleave/io/Digest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace cleave::compiler {

/// Returns the text of a type, without the quotes of diagnostics.
static std::string textOf(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// Reports operations that .mlir files may contain but that cannot run, because
/// the runtime only executes lists of commands on tensors.
static LogicalResult checkOperations(ModuleOp module, const std::string &path) {
  auto error = [&](Operation *op) {
    auto at = dyn_cast<FileLineColLoc>(op->getLoc());
    std::string where = at ? path + ":" + std::to_string(at.getLine()) + ":" +
                                 std::to_string(at.getColumn())
                           : "model '" + path + "'";
    return configError(module.getContext())
           << where << ": '" << op->getName().getStringRef() << "'";
  };
  // The walk is pre-order, so that the error is reported on a loop itself, and
  // not on operations in its regions, such as those that compute its bounds.
  WalkResult walked = module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op->getNumRegions() == 0 || isa<ModuleOp, func::FuncOp>(op))
      return WalkResult::advance();
    error(op) << " is not yet supported: loops and branches of models with "
                 "shardings of their own are partitioned and interpreted "
                 "(check --interpret), but do not run; unroll them";
    return WalkResult::interrupt();
  });
  if (walked.wasInterrupted())
    return failure();
  walked = module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (!isa<RankedTensorType>(type)) {
        error(op) << " gives a value of type " << textOf(type)
                  << "; expected tensors alone";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

/// Converts an attribute to the form in which version 1 of the digest printed
/// it, so that digests in old checkpoints still match.
static Attribute spelledAsBefore(Attribute value) {
  Builder b(value.getContext());
  NamedAttrList spelled;
  if (auto list = dyn_cast<ArrayAttr>(value))
    return b.getArrayAttr(llvm::map_to_vector(list, spelledAsBefore));
  if (auto role = dyn_cast<nn::RoleAttr>(value))
    return b.getStringAttr(nn::spell(role.getValue()));
  if (auto view = dyn_cast<nn::ViewAttr>(value)) {
    spelled.set("shape", view.getShape());
    spelled.set("view", view.getView());
    if (view.getPermutation())
      spelled.set("permutation", view.getPermutation());
  } else if (auto data = dyn_cast<nn::DataAttr>(value)) {
    spelled.set("file", data.getFile());
    spelled.set("offset", b.getI64IntegerAttr(data.getOffset()));
    spelled.set("length", b.getI64IntegerAttr(data.getLength()));
    spelled.set("dtype", data.getDtype());
  } else if (auto part = dyn_cast<nn::PartAttr>(value)) {
    spelled.set("name", part.getName());
    if (part.getData())
      spelled.set("data", spelledAsBefore(part.getData()));
  } else if (auto init = dyn_cast<nn::InitAttr>(value)) {
    spelled.set("kind", b.getStringAttr(nn::stringifyEnum(init.getKind())));
    if (init.getA())
      spelled.set("a", init.getA());
    if (init.getB())
      spelled.set("b", init.getB());
  } else {
    return value;
  }
  return spelled.getDictionary(value.getContext());
}

/// Returns a digest of what a program computes. It does not depend on the mesh,
/// on shardings or on where weights are stored. It depends on all sizes,
/// including the batch size.
static std::string digestOfProgram(ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  auto without = [](DictionaryAttr attributes) {
    NamedAttrList kept;
    if (attributes)
      for (NamedAttribute attribute : attributes)
        if (StringRef name = attribute.getName(); !name.starts_with("dist.") &&
                                                  name != nn::kDataAttr &&
                                                  name != nn::kTiedAttr)
          kept.append(attribute.getName(),
                      spelledAsBefore(attribute.getValue()));
    return kept.getDictionary(attributes.getContext());
  };
  SmallVector<Operation *> layout;
  copy->walk([&](Operation *op) {
    if (isa<dist::MeshOp, dist::ConstrainOp>(op))
      layout.push_back(op);
    else
      op->setDiscardableAttrs(without(op->getDiscardableAttrDictionary()));
    if (auto func = dyn_cast<func::FuncOp>(op)) {
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        if (DictionaryAttr attributes = func.getArgAttrDict(i))
          func.setArgAttrs(i, without(attributes));
      for (unsigned i = 0; i < func.getNumResults(); ++i)
        if (DictionaryAttr attributes = func.getResultAttrDict(i))
          func.setResultAttrs(i, without(attributes));
    }
  });
  for (Operation *op : layout) {
    op->replaceAllUsesWith(op->getOperands());
    op->erase();
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  copy->print(out, OpPrintingFlags().printGenericOpForm());
  return kGraphDigestVersion + digestOf(text);
}

/// Reports tensors without elements, because later phases do not support them.
static LogicalResult checkSizes(ModuleOp module) {
  WalkResult walked = module.walk([](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type);
          tensor && !op->use_empty() &&
          llvm::is_contained(tensor.getShape(), 0)) {
        std::string shape;
        llvm::raw_string_ostream out(shape);
        llvm::interleaveComma(tensor.getShape(), out);
        mlir::emitError(op->getLoc())
            << "gives a tensor of shape [" << shape
            << "], which has no elements; expected sizes of at least 1 "
               "in every dimension: leave out what computes it";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

/// Limits the number of token-expert pairs that each expert accepts to its
/// capacity. If the samples of a microbatch share the capacity, the output for
/// a sample depends on all samples of the microbatch.
static LogicalResult limitChoices(ModuleOp module, const Config &config) {
  if (config.parallel.expert.capacity == 0)
    return success();
  return runPasses(module, "import-capacity", [&](OpPassManager &passes) {
    LimitChoicesPassOptions options;
    options.capacity = config.parallel.expert.capacity;
    options.scope = config.parallel.expert.capacityScope;
    passes.addNestedPass<func::FuncOp>(createLimitChoicesPass(options));
    if (options.scope == "microbatch")
      passes.addNestedPass<func::FuncOp>(createMarkBatchPass());
  });
}

/// Imports the model again with a batch of `batch` samples, and adds its
/// @forward to the module as `name`. nn-add-loss compares this function with
/// @forward to find out how the loss depends on the batch size.
static LogicalResult addForward(ModuleOp module, StringRef name,
                                const std::string &path, const Config &config,
                                int64_t batch, bool readWeights) {
  MLIRContext &context = *module.getContext();
  // Remarks and warnings were already reported by the first import.
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &diagnostic) {
    return success(diagnostic.getSeverity() != DiagnosticSeverity::Error);
  });
  auto whole = importModel(path, config, context, batch, readWeights);
  if (failed(whole))
    return failure();
  auto forward = (*whole)->lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  forward->remove();
  forward.setName(name);
  module.push_back(forward);
  return success();
}

/// Adds copies of @forward that were imported with other batch sizes, if
/// nn-add-loss needs them to derive the loss of a step with several
/// microbatches.
static LogicalResult addForwards(ModuleOp module, const std::string &path,
                                 const Config &config,
                                 std::optional<int64_t> batch,
                                 bool readWeights) {
  int64_t microbatches = config.train.microbatches;
  bool isInside = StringRef(config.train.loss).starts_with("output:");
  if (microbatches == 1 || !(isInside || batch == 1))
    return success();
  if (!batch)
    return configError(module.getContext())
           << path << ": train.loss = \"" << config.train.loss
           << "\" is the loss of a whole step, which has " << microbatches
           << " microbatches; set dims.batch, its samples";
  int64_t samples = *batch;
  if (failed(addForward(module, nn::kForwardStepFunc, path, config,
                        samples * microbatches, readWeights)))
    return failure();
  return isInside && samples == 1
             ? addForward(module, nn::kForwardOtherFunc, path, config,
                          2 * microbatches, readWeights)
             : success();
}

/// Imports an ONNX file with the batch size of one microbatch.
static FailureOr<OwningOpRef<ModuleOp>> loadOnnx(const std::string &path,
                                                 const Config &config,
                                                 MLIRContext &context,
                                                 const LoadOptions &options) {
  std::optional<int64_t> batch;
  if (auto found = config.dims.find("batch"); found != config.dims.end()) {
    if (found->second % config.train.microbatches)
      return configError(&context)
             << "dims.batch = " << found->second
             << " does not divide by train.microbatches = "
             << config.train.microbatches;
    batch = found->second / config.train.microbatches;
  }
  auto module = importModel(path, config, context, batch, options.readWeights);
  if (failed(module) || failed(checkSizes(**module)) ||
      (options.trains && failed(addForwards(**module, path, config, batch,
                                            options.readWeights))) ||
      failed(limitChoices(**module, config)))
    return failure();
  return module;
}

LogicalResult prepareModel(ModuleOp module, const std::string &path,
                           const Config &config, bool compiles) {
  bool isSplit = isSharded(module);
  if (((compiles || !isSplit) && failed(checkOperations(module, path))) ||
      failed(checkSizes(module)))
    return failure();
  if (isSplit)
    return failed(nn::verifyTypes(module))
               ? failure()
               : prepareSharded(module, path, config);
  if (failed(checkNnModel(module, path, config)) ||
      failed(nn::verifyTypes(module)) ||
      failed(runPasses(module, "import-batch", [](OpPassManager &passes) {
        passes.addNestedPass<func::FuncOp>(createMarkBatchPass());
      })))
    return failure();
  return limitChoices(module, config);
}

FailureOr<OwningOpRef<ModuleOp>> loadModel(const std::string &path,
                                           const Config &config,
                                           MLIRContext &context,
                                           const LoadOptions &options) {
  if (failed(requireFile(&context, path, "a model")))
    return failure();
  if (!StringRef(path).ends_with(".mlir"))
    return loadOnnx(path, config, context, options);
  if (!config.data.bind.empty())
    return configError(&context)
           << "data.bind." << config.data.bind.begin()->first
           << " (--bind): binds inputs of ONNX models; in '" << path
           << "' write a constant instead";
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
  if (!module)
    return failure();
  (*module)->setAttr(kGraphDigestAttr,
                     StringAttr::get(&context, digestOfProgram(*module)));
  if (failed(prepareModel(*module, path, config, options.compiles)))
    return failure();
  return module;
}

} // namespace cleave::compiler
