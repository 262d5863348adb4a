// A model as the phases take it: imported or read, and refused where it has
// what no phase expects.

#include "Phases.h"

#include "NnModel.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/io/Digest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace cleave::driver {

/// What can be read from .mlir but does not run: the runtime takes a list of
/// commands on tensors.
static void checkOperations(ModuleOp module, const std::string &path) {
  auto nameOf = [&](Operation *op) {
    auto at = dyn_cast<FileLineColLoc>(op->getLoc());
    std::string where = at ? path + ":" + std::to_string(at.getLine()) + ":" +
                                 std::to_string(at.getColumn())
                           : "model '" + path + "'";
    return where + ": '" + op->getName().getStringRef().str() + "'";
  };
  // The loop is to blame, not its bounds.
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op->getNumRegions() != 0 && !isa<ModuleOp, func::FuncOp>(op))
      throw Failure(BadUsage, nameOf(op) +
                                  " is not yet supported: loops and branches "
                                  "of models with shardings of their own are "
                                  "partitioned and interpreted (check "
                                  "--interpret), but do not run; unroll them");
  });
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (!isa<RankedTensorType>(type)) {
        std::string found;
        llvm::raw_string_ostream(found) << type;
        throw Failure(BadUsage, nameOf(op) + " gives a value of type " + found +
                                    "; expected tensors alone");
      }
  });
}

/// What a program computes, wherever its ranks are and its weights lie:
/// shardings are layout. Sizes are not told from what they mean, so that
/// another number of samples is another program.
static std::string digestOfProgram(ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  auto without = [](DictionaryAttr attributes) {
    NamedAttrList kept;
    if (attributes)
      for (NamedAttribute attribute : attributes)
        if (StringRef name = attribute.getName(); !name.starts_with("dist.") &&
                                                  name != kDataAttr &&
                                                  name != kTiedAttr)
          kept.push_back(attribute);
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

/// Tensors without elements: no phase after this one expects them.
static void checkSizes(ModuleOp module, Diagnostics &diagnostics) {
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
  if (walked.wasInterrupted())
    diagnostics.fail(BadUsage);
}

/// Experts have no room for more than so many slots. Where samples share that
/// room, an output of one depends on all of its call.
static void limitChoices(ModuleOp module, const Config &config,
                         Diagnostics &diagnostics) {
  if (config.parallel.expert.capacity == 0)
    return;
  PassManager passes(module.getContext());
  LimitChoicesPassOptions options;
  options.capacity = config.parallel.expert.capacity;
  options.scope = config.parallel.expert.capacityScope;
  passes.addNestedPass<func::FuncOp>(createLimitChoicesPass(options));
  if (options.scope == "microbatch")
    passes.addNestedPass<func::FuncOp>(createMarkBatchPass());
  runPasses(passes, module, diagnostics);
}

/// @forward of `batch` samples joins the module as `name`, for what the loss of
/// a microbatch depends on.
static void addForward(ModuleOp module, StringRef name, const std::string &path,
                       const Config &config, MLIRContext &context,
                       int64_t batch, bool readWeights) {
  OwningOpRef<ModuleOp> whole =
      importModel(path, config, context, batch, readWeights, /*isQuiet=*/true);
  auto forward = whole->lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  forward->remove();
  forward.setName(name);
  module.push_back(forward);
}

/// What the loss of several microbatches is asked of: see nn-add-loss.
static void addForwards(ModuleOp module, const std::string &path,
                        const Config &config, MLIRContext &context,
                        std::optional<int64_t> batch, bool readWeights) {
  int64_t microbatches = config.train.microbatches;
  bool isInside = StringRef(config.train.loss).starts_with("output:");
  if (microbatches == 1 || !(isInside || batch == 1))
    return;
  if (!batch)
    throw Failure(BadUsage, path + ": train.loss = \"" + config.train.loss +
                                "\" is the loss of a whole step, which has " +
                                std::to_string(microbatches) +
                                " microbatches; set dims.batch, its samples");
  int64_t samples = *batch;
  addForward(module, nn::kForwardStepFunc, path, config, context,
             samples * microbatches, readWeights);
  if (isInside && samples == 1)
    addForward(module, nn::kForwardOtherFunc, path, config, context,
               2 * microbatches, readWeights);
}

OwningOpRef<ModuleOp> loadModel(const std::string &path, const Config &config,
                                MLIRContext &context, bool readWeights,
                                bool compiles, bool trains) {
  requireFile(path, "a model");
  if (!StringRef(path).ends_with(".mlir")) {
    std::optional<int64_t> batch;
    if (auto found = config.dims.find("batch"); found != config.dims.end()) {
      if (found->second % config.train.microbatches)
        throw Failure(BadUsage,
                      "dims.batch = " + std::to_string(found->second) +
                          " does not divide by train.microbatches = " +
                          std::to_string(config.train.microbatches));
      batch = found->second / config.train.microbatches;
    }
    OwningOpRef<ModuleOp> module =
        importModel(path, config, context, batch, readWeights);
    Diagnostics diagnostics(context);
    checkSizes(*module, diagnostics);
    if (trains)
      addForwards(*module, path, config, context, batch, readWeights);
    limitChoices(*module, config, diagnostics);
    return module;
  }
  if (!config.data.bind.empty())
    throw Failure(BadUsage, "--bind " + config.data.bind.begin()->first +
                                ": binds inputs of ONNX models; in '" + path +
                                "' write a constant instead");
  Diagnostics diagnostics(context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
  if (!module)
    diagnostics.fail(BadUsage);
  (*module)->setAttr(kGraphDigestAttr,
                     StringAttr::get(&context, digestOfProgram(*module)));
  if (compiles || !isSharded(*module))
    checkOperations(*module, path);
  checkSizes(*module, diagnostics);
  if (isSharded(*module)) {
    if (failed(compiler::prepareSharded(*module, path, config)))
      diagnostics.fail(BadUsage);
    return module;
  }
  checkNnModel(*module, path, config);
  PassManager passes(&context);
  passes.addNestedPass<func::FuncOp>(createMarkBatchPass());
  runPasses(passes, *module, diagnostics);
  limitChoices(*module, config, diagnostics);
  return module;
}

} // namespace cleave::driver
