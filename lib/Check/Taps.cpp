// `check --bisect`: finds the first value that differs between the sharded
// program and the reference. For this, every floating-point value of the
// programs becomes an additional result (a tap).

#include "FaultPlaces.h"
#include "cleave/Check/Check.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Target/Schedule.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

constexpr StringLiteral kTapPrefix = "value ";

bool isTap(const Port &port) {
  return StringRef(port.name).starts_with(kTapPrefix);
}

} // namespace

void check::tapAllValues(ModuleOp module) {
  Builder builder(module.getContext());
  // The additional results (taps) of different stages in one module get
  // different names.
  std::string prefix = kTapPrefix.str();
  if (auto stage = module->getAttrOfType<IntegerAttr>(kStageAttr))
    prefix += std::to_string(stage.getInt()) + ".";
  for (StringRef name :
       {nn::kForwardFunc, nn::kLossGradFunc, nn::kUpdateFunc}) {
    auto func = module.lookupSymbol<func::FuncOp>(name);
    if (!func || func.isDeclaration())
      continue;
    Block &body = func.getBody().front();
    Operation *end = body.getTerminator();
    SmallVector<Value> results(end->getOperands());
    SmallVector<DictionaryAttr> attrs;
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      attrs.push_back(func.getResultAttrDict(i));
    int64_t number = 0;
    for (Operation &op : body.without_terminator()) {
      // The results of operations without operands (constants, index grids) are
      // omitted, because they are equal on all ranks.
      if (op.getNumOperands() == 0)
        continue;
      for (OpResult value : op.getResults()) {
        if (!isa<FloatType>(getElementTypeOrSelf(value)))
          continue;
        std::string text =
            (prefix + Twine(number++) + ": " + describe(&op)).str();
        results.push_back(value);
        attrs.push_back(nn::portAttrs(func.getContext(), text, nn::Role::Tap));
      }
    }
    end->setOperands(results);
    func.setType(FunctionType::get(func.getContext(), func.getArgumentTypes(),
                                   TypeRange(ValueRange(results))));
    func.setAllResultAttrs(attrs);
  }
}

namespace {

/// Runs the sharded program and the reference, and compares all values that
/// tapAllValues has added as results.
class Search {
public:
  Search(ModuleOp module, Engine &sharded, Engine &reference, Values &values,
         const CheckOptions &options)
      : module(module), sharded(sharded), reference(reference), values(values),
        options(options) {}

  /// Runs one microbatch through the functions of a program without a pipeline.
  /// Returns a description of the first value that differs, or "".
  FailureOr<std::string> functions() {
    if (failed(start()))
      return failure();
    for (StringRef name :
         {nn::kForwardFunc, nn::kLossGradFunc, nn::kUpdateFunc}) {
      auto func = module.lookupSymbol<func::FuncOp>(name);
      if (!func)
        continue;
      if (failed(clearSums(func)) || failed(run(name)))
        return failure();
      FailureOr<std::string> found = compare(func);
      if (failed(found) || !found->empty())
        return found;
    }
    return std::string();
  }

  /// Runs a step of the pipeline and of the reference. Compares the values of
  /// one microbatch after another, each forward through all stages and then
  /// backward, and then the values of the update. Returns a description of the
  /// first value that differs, or "".
  FailureOr<std::string> stages() {
    if (failed(start()))
      return failure();
    std::vector<func::FuncOp> forward, forwardParts, backwardParts, update;
    for (auto func : module.getOps<func::FuncOp>()) {
      StringRef name = functionName(func);
      if (name == nn::kForwardFunc)
        forward.push_back(func);
      else if (name == kForwardPart)
        forwardParts.push_back(func);
      else if (name == kInputPart || name == kWeightPart ||
               name == kBackwardPart)
        backwardParts.push_back(func);
      else if (name == nn::kUpdateFunc)
        update.push_back(func);
      else
        continue;
      if (failed(clearSums(func)))
        return failure();
    }
    // The backward pass begins at the last stage. The sort is stable, so @W
    // stays after @I in each stage.
    llvm::stable_sort(backwardParts, [](func::FuncOp a, func::FuncOp b) {
      return stageOf(a) > stageOf(b);
    });
    if (!forward.empty() && failed(run(nn::kForwardFunc)))
      return failure();
    FailureOr<std::string> found = compareAll(forward);
    if (failed(found) || !found->empty())
      return found;
    for (int64_t k = 0; k < options.microbatches; ++k)
      for (Engine *engine : {&sharded, &reference})
        if (failed(values.setMicrobatch(*engine, 1, k)) ||
            failed(engine->run(nn::kLossGradFunc)))
          return failure();
    bool all = sharded.keepsTaps() && reference.keepsTaps();
    for (int64_t k = all ? 0 : options.microbatches - 1;
         k < options.microbatches; ++k)
      for (const auto *list : {&forwardParts, &backwardParts})
        if (found = compareAll(*list, k); failed(found) || !found->empty())
          return found;
    if (failed(run(nn::kUpdateFunc)))
      return failure();
    llvm::stable_sort(update, [](func::FuncOp a, func::FuncOp b) {
      return partOf(a) < partOf(b);
    });
    return compareAll(update);
  }

private:
  static int64_t stageOf(func::FuncOp func) {
    return func->getAttrOfType<IntegerAttr>(kStageAttr).getInt();
  }
  /// Returns the number PART of the function name "update.PART.STAGE".
  static int64_t partOf(func::FuncOp func) {
    int64_t part = 0;
    func.getName().split('.').second.split('.').first.getAsInteger(10, part);
    return part;
  }

  LogicalResult start() {
    for (Engine *engine : {&sharded, &reference})
      if (failed(values.setInitial(*engine)) ||
          failed(values.setMicrobatch(*engine, 1, 0)))
        return failure();
    return success();
  }

  /// Sets the arguments in which the function sums gradients and losses over
  /// microbatches to zero.
  LogicalResult clearSums(func::FuncOp func) {
    if (functionName(func) == nn::kUpdateFunc)
      return success();
    for (const Port &port : argumentsOf(func))
      if (nn::isOneOf(port.role, {nn::Role::Gradient, nn::Role::Loss,
                                  nn::Role::Weight, nn::Role::Accumulator}))
        for (Engine *engine : {&sharded, &reference})
          if (failed(engine->set(port, Tensor(port.type))))
            return failure();
    return success();
  }

  LogicalResult run(StringRef function) {
    return success(succeeded(sharded.run(function)) &&
                   succeeded(reference.run(function)));
  }

  FailureOr<std::string> compareAll(const std::vector<func::FuncOp> &functions,
                                    int64_t microbatch = -1) {
    for (func::FuncOp func : functions) {
      FailureOr<std::string> found = compare(func, microbatch);
      if (failed(found) || !found->empty())
        return found;
    }
    return std::string();
  }

  /// Returns a description of the first value of the function that differs
  /// between the sharded program and the reference, or "".
  FailureOr<std::string> compare(func::FuncOp func, int64_t microbatch = -1) {
    for (const Port &port : resultsOf(func)) {
      if (!isTap(port))
        continue;
      auto value = [&](Engine &engine) {
        return microbatch < 0 ? engine.get(port)
                              : engine.getTap(port, microbatch);
      };
      FailureOr<Gathered> ours = value(sharded), theirs = value(reference);
      if (failed(ours) || failed(theirs))
        return failure();
      Difference found = difference(ours->whole, theirs->whole);
      // For values that are almost zero the limit is absolute, because such
      // differences are noise.
      double limit = options.tolerances.exact * std::max(found.magnitude, 1e-6);
      if (found.largest <= limit && ours->replicaDifference == 0)
        continue;
      std::string text = place(func, port, microbatch);
      llvm::raw_string_ostream out(text);
      if (found.largest <= limit) {
        out << ": copies of ranks differ by " << ours->replicaDifference;
        return text;
      }
      out << ": " << found.largest << " beside " << found.magnitude << " at [";
      llvm::interleaveComma(unflatten(found.worst, theirs->whole.shape()), out);
      out << "] on rank " << (ours->rankOf ? ours->rankOf(found.worst) : 0);
      return text;
    }
    return std::string();
  }

  /// Describes the operation that computes a compared value, such as
  /// "arith.mulf in @B of stage 1, microbatch 0, node /mlp/Mul".
  static std::string place(func::FuncOp func, const Port &port,
                           int64_t microbatch) {
    std::string text = StringRef(port.name).split(": ").second.str();
    if (!func->hasAttr(kStageAttr))
      return text;
    auto [op, rest] = StringRef(text).split(" in @");
    std::string where = (op + " in @" + func.getName().rsplit('.').first +
                         " of stage " + Twine(stageOf(func)))
                            .str();
    if (microbatch >= 0)
      where += ", microbatch " + std::to_string(microbatch);
    size_t node = rest.find_first_of(", ");
    return where + (node == StringRef::npos ? "" : rest.substr(node)).str();
  }

  ModuleOp module;
  Engine &sharded, &reference;
  Values &values;
  const CheckOptions &options;
};

} // namespace

FailureOr<std::string> check::firstDifference(ModuleOp module, Engine &sharded,
                                              Engine &reference, Values &values,
                                              const CheckOptions &options) {
  Search search(module, sharded, reference, values, options);
  return target::isPipelined(module) ? search.stages() : search.functions();
}
