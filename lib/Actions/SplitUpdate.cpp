// Splits @update of a pipeline stage into several functions, at the sums over
// several stages (pipe.sum_stages).

#include "SplitUpdate.h"

#include "Cutter.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Interfaces/StageSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::actions;

namespace {

class UpdateSplitter {
public:
  UpdateSplitter(func::FuncOp func, bool chained)
      : func(func), chained(chained), block(actionBody(func)) {}

  void run() {
    findLevels();
    assignParts();
    replaceSums();
    cut();
  }

private:
  void findLevels();
  void assignParts();
  void replaceSums();
  /// Makes operand number `place` of `sum` available to the runtime, which adds
  /// up the operands of all stages. The operand becomes a result of the part of
  /// @update before the sum, unless it is already stored as a result of
  /// REDUCE_GRAD. Returns an attribute with the names of the operand and of its
  /// sum.
  pipe::SumAttr sumOperand(pipe::SumStagesOp sum, unsigned place,
                           std::string name);
  Value addEarlierStages(pipe::SumStagesOp sum, Value operand, StringRef name);
  void distributeResults(Cutter &cutter);
  void cut();

  /// Adds an argument to @update, for a value that is stored from one part of
  /// the update to a later part.
  BlockArgument addArgument(Type type, const Twine &name, Location loc) {
    unsigned number = func.getNumArguments();
    (void)func.insertArgument(number, type, port(name), loc);
    return func.getArgument(number);
  }
  DictionaryAttr port(const Twine &name) {
    return residualAttrs(func.getContext(), name, kUpdateSlot);
  }

  func::FuncOp func;
  bool chained;
  Block &block;
  /// For each operation, the largest number of sums over stages on a path from
  /// an argument of @update to the operation.
  DenseMap<Operation *, unsigned> levels;
  DenseMap<Operation *, unsigned> parts;
  unsigned deepest = 0; // number of the last part
  SmallVector<pipe::SumStagesOp> sums;
  // For each part of @update: the values that it returns because they are
  // operands of a sum over stages, and the attributes (pipe.sum) of these sums.
  // The runtime computes the sums after the part has run.
  std::vector<std::vector<ResultPort>> operands;
  std::vector<SmallVector<Attribute>> sumAttrs;
};

} // namespace

void UpdateSplitter::findLevels() {
  unsigned ofSome = 0;
  for (Operation &op : block.without_terminator()) {
    unsigned &own = levels[&op];
    for (Value operand : op.getOperands())
      if (Operation *def = operand.getDefiningOp())
        own = std::max(own, levels.lookup(def) + isa<pipe::SumStagesOp>(def));
    if (auto sum = dyn_cast<pipe::SumStagesOp>(op)) {
      // A sum over some of the stages is always computed before each later sum
      // over all stages, even if the two are independent in this stage. In
      // another stage the later sum may depend on the earlier one, and all
      // stages must compute their common sums in the same order.
      if (sum.getStagesAttr())
        ofSome = std::max(ofSome, own + 1);
      else
        own = std::max(own, ofSome);
      sums.push_back(sum);
      deepest = std::max(deepest, own + 1);
    }
  }
}

/// Assigns each operation to the latest part of @update that its readers allow,
/// so that fewer values are stored between parts.
void UpdateSplitter::assignParts() {
  for (Operation &op : llvm::reverse(block.without_terminator())) {
    unsigned part = deepest;
    if (isa<pipe::SumStagesOp>(op))
      part = levels[&op];
    else
      for (Operation *user : op.getUsers())
        part = std::min(part,
                        isa<func::ReturnOp>(user)
                            ? deepest
                            : parts.lookup(block.findAncestorOpInBlock(*user)));
    parts[&op] = part;
  }
}

/// Removes the sums over stages from @update, because the runtime computes
/// them. The result of a sum becomes an argument of @update, which a part after
/// the sum reads.
void UpdateSplitter::replaceSums() {
  operands.resize(deepest + 1);
  sumAttrs.resize(deepest + 1);
  for (auto [index, sum] : llvm::enumerate(sums))
    for (auto [place, operand] : llvm::enumerate(sum.getInputs())) {
      pipe::SumAttr attr = sumOperand(sum, place,
                                      "sum." + std::to_string(index) + "." +
                                          std::to_string(place));
      sumAttrs[parts.lookup(sum)].push_back(attr);
      BlockArgument total = addArgument(
          operand.getType(), attr.getResult().getValue(), sum.getLoc());
      sum.getResult(place).replaceAllUsesWith(total);
    }
  for (pipe::SumStagesOp sum : sums) {
    parts.erase(sum);
    sum.erase();
  }
}

pipe::SumAttr UpdateSplitter::sumOperand(pipe::SumStagesOp sum, unsigned place,
                                         std::string name) {
  Value given = sum.getInputs()[place];
  if (chained)
    given = addEarlierStages(sum, given, name);
  // A gradient that the action REDUCE_GRAD has reduced is already stored under
  // its own name, so @update need not return it.
  auto reduced = dyn_cast<BlockArgument>(given);
  DictionaryAttr attrs =
      reduced ? func.getArgAttrDict(reduced.getArgNumber()) : nullptr;
  if (pipe::slotOf(attrs) == kReducedSlot)
    name = nameOf(attrs).str();
  else
    operands[parts.lookup(sum)].push_back({given, port(name)});
  MLIRContext *context = func.getContext();
  return pipe::SumAttr::get(context, StringAttr::get(context, name),
                            StringAttr::get(context, name + ".all"),
                            sum.getStagesAttr());
}

/// Adds to the operand of a sum the total over the earlier stages on the same
/// rank, which is passed as a new argument.
Value UpdateSplitter::addEarlierStages(pipe::SumStagesOp sum, Value operand,
                                       StringRef name) {
  BlockArgument before =
      addArgument(operand.getType(), name + ".before", sum.getLoc());
  OpBuilder b(sum);
  auto added = arith::AddFOp::create(b, sum.getLoc(), operand, before);
  parts[added] = parts.lookup(sum);
  return added;
}

void UpdateSplitter::distributeResults(Cutter &cutter) {
  Operation *terminator = block.getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
    DictionaryAttr attrs = func.getResultAttrDict(index);
    Operation *def = value.getDefiningOp();
    bool isTap = roleOf(attrs) == Role::Tap && def;
    cutter.results[isTap ? parts.lookup(def) : deepest].push_back(
        {value, attrs});
  }
}

void UpdateSplitter::cut() {
  Cutter cutter(func, parts, deepest + 1);
  cutter.results = std::move(operands);
  distributeResults(cutter);
  cutter.analyze("u");
  MLIRContext *context = func.getContext();
  for (auto &[value, entry] : cutter.kept)
    if (!entry.persistent && !entry.attrs.get(pipe::kSlotAttr))
      entry.attrs.set(pipe::kSlotAttr, slotAttr(context, kUpdateSlot));
  std::vector<std::string> names;
  for (unsigned part = 0; part <= deepest; ++part)
    names.push_back(updatePart(int(part)));
  auto addsUp = [&](unsigned part) { return !sumAttrs[part].empty(); };
  for (auto [built, list] : llvm::zip(cutter.build(names, addsUp), sumAttrs))
    if (built && !list.empty())
      built->setAttr(pipe::kSumsAttr, ArrayAttr::get(context, list));
}

void cleave::actions::splitUpdate(func::FuncOp func, bool chained) {
  UpdateSplitter(func, chained).run();
}
