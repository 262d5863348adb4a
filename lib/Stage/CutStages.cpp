// pipe-cut-stages: cuts a model into one module for each stage.

#include "StageGraph.h"

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Stage/Passes.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_CUTSTAGESPASS
#include "cleave/Stage/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::stage;

namespace {

/// Splits one function into its stages.
class FunctionCut {
public:
  FunctionCut(func::FuncOp func, int64_t stages, bool isTraining)
      : func(func), stages(stages), isTraining(isTraining),
        arguments(func.getNumArguments(), llvm::BitVector(stages)),
        crossing(stages), results(stages) {}

  /// Reports functions that cannot be cut.
  LogicalResult analyze() {
    Block &body = func.getBody().front();
    Operation *end = body.getTerminator();
    bool isLoss = isTraining || func.getName() == nn::kLossFunc;
    for (OpOperand &operand : end->getOpOperands()) {
      DictionaryAttr attrs = func.getResultAttrDict(operand.getOperandNumber());
      // Updates of buffers are not supported, because all stages that read the
      // buffer would need its new value.
      if (nn::roleOf(attrs) == nn::Role::Buffer)
        return func.emitOpError("returns an update of buffer '")
               << nn::nameOf(attrs)
               << "', which cannot be cut into stages: updates of buffers are "
                  "not yet supported in a pipeline";
      Operation *def = operand.get().getDefiningOp();
      int64_t stage = stages - 1;
      bool isCount = nn::roleOf(attrs) == nn::Role::Accumulator;
      if ((!isLoss || isCount) && def && stageOf(def) >= 0)
        stage = stageOf(def);
      results[stage].push_back(operand.getOperandNumber());
      need(operand.get(), stage);
    }
    for (Operation &op : llvm::reverse(body.without_terminator())) {
      int64_t stage = stageOf(&op);
      if (stage >= stages)
        return op.emitOpError("has stage ")
               << stage << ", but there are " << stages;
      llvm::BitVector places(stages);
      if (stage >= 0)
        places.set(stage);
      else if (auto it = needed.find(&op); it != needed.end())
        places = it->second;
      else
        continue;
      for (Value value : readsOf(&op)) {
        Operation *def = value.getDefiningOp();
        int64_t from = def ? stageOf(def) : -1;
        if (from >= 0 && stage < 0)
          return op.emitOpError("has no stage, but reads a value of stage ")
                 << from;
        if (from > stage && stage >= 0)
          return op.emitOpError("has stage ")
                 << stage << ", but reads a value of stage " << from;
        for (unsigned place : places.set_bits())
          need(value, place);
      }
      needed[&op] = std::move(places);
    }
    for (Operation &op : body.without_terminator())
      for (Value result : op.getResults())
        if (auto it = lastRead.find(result); it != lastRead.end())
          for (int64_t cut = stageOf(&op); cut < it->second; ++cut)
            crossing[cut].push_back(result);
    return success();
  }

  /// Returns the stages in which an argument is read.
  llvm::BitVector &readersOf(unsigned argument) { return arguments[argument]; }

  /// Adds each stage's part of the function, if it has any, to its module.
  void build(ArrayRef<ModuleOp> modules,
             const llvm::StringMap<llvm::BitVector> &owners) {
    if (isTraining)
      differentiable = differentiableValues(func);
    flow = nn::BatchFlow::ofArguments(func);
    positions = nn::PositionFlow(func);
    SmallVector<IRMapping> mappings(stages);
    SmallVector<Block *> blocks(stages, nullptr);
    for (int64_t stage = 0; stage < stages; ++stage)
      if (isTraining || !results[stage].empty() || !crossing[stage].empty())
        blocks[stage] = declare(stage, modules[stage], owners, mappings[stage]);
    for (Operation &op : func.getBody().front().without_terminator()) {
      auto it = needed.find(&op);
      if (it == needed.end())
        continue;
      for (unsigned stage : it->second.set_bits()) {
        if (!blocks[stage])
          continue; // no operation of the stage reads it
        OpBuilder builder = OpBuilder::atBlockEnd(blocks[stage]);
        Operation *copy = builder.clone(op, mappings[stage]);
        copy->removeAttr(pipe::kStageAttr);
      }
    }
    Operation *end = func.getBody().front().getTerminator();
    for (int64_t stage = 0; stage < stages; ++stage) {
      if (!blocks[stage])
        continue;
      SmallVector<Value> values;
      for (Value value : crossing[stage])
        values.push_back(mappings[stage].lookup(value));
      for (unsigned result : results[stage])
        values.push_back(mappings[stage].lookup(end->getOperand(result)));
      OpBuilder builder = OpBuilder::atBlockEnd(blocks[stage]);
      func::ReturnOp::create(builder, end->getLoc(), values);
    }
  }

private:
  static int64_t stageOf(Operation *op) {
    auto stage = op->getAttrOfType<IntegerAttr>(pipe::kStageAttr);
    return stage ? stage.getInt() : -1;
  }

  void need(Value value, int64_t stage) {
    Operation *def = value.getDefiningOp();
    if (!def) {
      arguments[cast<BlockArgument>(value).getArgNumber()].set(stage);
    } else if (int64_t from = stageOf(def); from < 0) {
      auto [it, isNew] = needed.try_emplace(def, stages);
      it->second.set(stage);
    } else if (from < stage) {
      int64_t &last = lastRead.try_emplace(value, stage).first->second;
      last = std::max(last, stage);
    }
  }

  /// Returns the attributes of value number `index` among the values that stage
  /// `stage` sends to the next stage.
  DictionaryAttr attrsOf(int64_t stage, unsigned index) {
    Value value = crossing[stage][index];
    Builder builder(func.getContext());
    NamedAttrList attrs;
    std::string prefix = isTraining ? "" : func.getName().str() + ".";
    nn::setName(attrs, func.getContext(),
                prefix + "cut." + Twine(stage) + "." + Twine(index));
    nn::setRole(attrs, func.getContext(), nn::Role::Activation);
    if (flow) {
      if (std::optional<int64_t> dim = flow->dimOrUnit(value))
        attrs.set(nn::kBatchDimAttr, builder.getI64IntegerAttr(*dim));
      if (flow->isOfWholeCall(value))
        attrs.set(nn::kWholeCallAttr, builder.getUnitAttr());
    }
    if (std::optional<int64_t> dim = positions->dimOf(value))
      attrs.set(nn::kPositionDimAttr, builder.getI64IntegerAttr(*dim));
    if (differentiable.contains(value))
      attrs.set(pipe::kDifferentiableAttr, builder.getUnitAttr());
    return attrs.getDictionary(func.getContext());
  }

  Block *declare(int64_t stage, ModuleOp module,
                 const llvm::StringMap<llvm::BitVector> &owners,
                 IRMapping &mapping) {
    Builder attributes(func.getContext());
    SmallVector<Value> from;
    SmallVector<DictionaryAttr> argAttrs, resultAttrs;
    for (BlockArgument argument : func.getArguments()) {
      if (!arguments[argument.getArgNumber()].test(stage))
        continue;
      NamedAttrList attrs(func.getArgAttrDict(argument.getArgNumber()));
      if (isTrained(argument)) {
        auto name = dyn_cast_or_null<StringAttr>(attrs.get(nn::kNameAttr));
        const llvm::BitVector &owner =
            owners.find(name ? name.getValue() : "")->second;
        if (owner.count() > 1)
          attrs.set(pipe::kStagesAttr,
                    attributes.getDenseI64ArrayAttr(
                        SmallVector<int64_t>(owner.set_bits())));
      }
      // The value -1 of the attribute marks an input that has no dimension of
      // sequence positions. Without this mark, if a stage has only one input,
      // this input would be assumed to define the sequence positions.
      if (positions->any() && nn::roleOf(argument) == nn::Role::Input &&
          !positions->dimOf(argument))
        attrs.set(nn::kPositionDimAttr, attributes.getI64IntegerAttr(-1));
      from.push_back(argument);
      argAttrs.push_back(attrs.getDictionary(func.getContext()));
    }
    if (stage)
      for (auto [index, value] : llvm::enumerate(crossing[stage - 1])) {
        from.push_back(value);
        argAttrs.push_back(attrsOf(stage - 1, index));
      }
    SmallVector<Type> types;
    for (auto [index, value] : llvm::enumerate(crossing[stage])) {
      types.push_back(value.getType());
      resultAttrs.push_back(attrsOf(stage, index));
    }
    for (unsigned result : results[stage]) {
      types.push_back(func.getResultTypes()[result]);
      resultAttrs.push_back(func.getResultAttrDict(result));
    }
    if (positions->any())
      module->setAttr(nn::kPositionsAttr, attributes.getUnitAttr());
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto part = func::FuncOp::create(
        builder, func.getLoc(), func.getName(),
        builder.getFunctionType(TypeRange(ValueRange(from)), types));
    part->setDiscardableAttrs(func->getDiscardableAttrDictionary());
    part.setVisibility(func.getVisibility());
    part.setAllArgAttrs(argAttrs);
    part.setAllResultAttrs(resultAttrs);
    Block *block = part.addEntryBlock();
    for (auto [value, argument] :
         llvm::zip_equal(from, block->getArguments())) {
      argument.setLoc(value.getLoc());
      mapping.map(value, argument);
    }
    return block;
  }

  func::FuncOp func;
  int64_t stages;
  bool isTraining;
  SmallVector<llvm::BitVector> arguments; // the stages that read each argument
  DenseMap<Operation *, llvm::BitVector> needed;
  DenseMap<Value, int64_t> lastRead;          // the last stage that reads it
  SmallVector<SmallVector<Value>> crossing;   // from each stage to the next
  SmallVector<SmallVector<unsigned>> results; // indices of the function's
                                              // results, by stage
  DenseSet<Value> differentiable;
  std::optional<nn::BatchFlow> flow;
  std::optional<nn::PositionFlow> positions;
};

struct CutStagesPass : cleave::impl::CutStagesPassBase<CutStagesPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto count = module->getAttrOfType<IntegerAttr>(pipe::kStagesAttr);
    func::FuncOp main = mainFunction(module);
    if (!count || count.getInt() < 1 || !main || main.isExternal()) {
      module.emitError(
          "the module has no function @loss or @forward whose operations "
          "have stages; pipe-mark-stages comes first");
      return signalPassFailure();
    }
    int64_t stages = count.getInt();
    bool trains = main.getName() != nn::kForwardFunc;
    SmallVector<func::FuncOp> funcs;
    for (auto func : module.getOps<func::FuncOp>())
      if (!func.isExternal())
        funcs.push_back(func);
    std::vector<FunctionCut> cuts;
    for (func::FuncOp func : funcs) {
      cuts.emplace_back(func, stages, trains && func == main);
      if (failed(cuts.back().analyze()))
        return signalPassFailure();
    }
    llvm::StringMap<llvm::BitVector> owners = findOwners(funcs, cuts, stages);
    for (auto [func, cut] : llvm::zip_equal(funcs, cuts))
      if (func == main)
        keepArguments(func, cut, owners);
    SmallVector<ModuleOp> modules = addModules(module, stages);
    if (trains && main.getNumResults())
      for (ModuleOp part : modules)
        part->setAttr(pipe::kScalarAttr,
                      TypeAttr::get(main.getResultTypes().front()));
    for (FunctionCut &cut : cuts)
      cut.build(modules, owners);
    for (func::FuncOp func : funcs)
      func.erase();
  }

private:
  /// Returns the stages of each trained parameter: all stages in which some
  /// function reads it, or stage 0 if no function does.
  llvm::StringMap<llvm::BitVector> findOwners(ArrayRef<func::FuncOp> funcs,
                                              std::vector<FunctionCut> &cuts,
                                              int64_t stages) {
    llvm::StringMap<llvm::BitVector> owners;
    for (auto [index, cut] : llvm::enumerate(cuts))
      for (BlockArgument argument : func::FuncOp(funcs[index]).getArguments())
        if (isTrained(argument))
          owners.try_emplace(nameOf(argument), stages).first->second |=
              cut.readersOf(argument.getArgNumber());
    for (auto &entry : owners)
      if (entry.second.none())
        entry.second.set(0);
    return owners;
  }

  /// Lets a stage keep some arguments that it does not read. The training
  /// function of a stage has all parameters of the stage as arguments, because
  /// they are updated even if the function does not read them. An input that no
  /// stage reads becomes an argument of stage 0.
  void keepArguments(func::FuncOp training, FunctionCut &cut,
                     const llvm::StringMap<llvm::BitVector> &owners) {
    for (BlockArgument argument : training.getArguments()) {
      llvm::BitVector &readers = cut.readersOf(argument.getArgNumber());
      if (isTrained(argument))
        readers |= owners.find(nameOf(argument))->second;
      else if (readers.none())
        readers.set(0);
    }
  }

  static StringRef nameOf(BlockArgument argument) {
    auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return nn::nameOf(func, argument.getArgNumber());
  }

  /// Creates modules @stage0, @stage1, ..., each with a copy of the module's
  /// other symbols (all but functions).
  SmallVector<ModuleOp> addModules(ModuleOp module, int64_t stages) {
    SmallVector<Operation *> others;
    for (Operation &op : *module.getBody())
      if (!isa<func::FuncOp>(op))
        others.push_back(&op);
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    SmallVector<ModuleOp> modules;
    for (int64_t stage = 0; stage < stages; ++stage) {
      auto part = ModuleOp::create(builder, module.getLoc(),
                                   "stage" + std::to_string(stage));
      part->setDiscardableAttrs(module->getDiscardableAttrDictionary());
      part->setAttr(pipe::kStageAttr, builder.getI64IntegerAttr(stage));
      part->setAttr(pipe::kStagesAttr, builder.getI64IntegerAttr(stages));
      OpBuilder inside = OpBuilder::atBlockBegin(part.getBody());
      for (Operation *op : others)
        inside.clone(*op);
      modules.push_back(part);
    }
    for (Operation *op : others)
      op->erase();
    return modules;
  }
};

} // namespace
