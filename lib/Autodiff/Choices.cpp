// Finds the values of a program that contain, at run time, the ids of the
// experts that the routers choose.

#include "Choices.h"

#include "BuildFunctions.h"
#include "cleave/Support/Locations.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace cleave::autodiff {

namespace {

int64_t sizeOf(Value value) { return typeOf(value).getNumElements(); }

/// An expert with a capacity drops token-expert pairs beyond it. Given the
/// expert ids `taken` after such drops, returns the ids before them. Searches
/// backwards from `taken` for the first result of a top-k or argmax that has as
/// many elements as `taken`.
Value chosenOf(Value taken) {
  llvm::SetVector<Value> reached;
  reached.insert(taken);
  for (size_t at = 0; at < reached.size(); ++at) {
    Operation *def = reached[at].getDefiningOp();
    if (isa_and_present<nn::TopKOp, nn::ArgMaxOp>(def) &&
        sizeOf(reached[at]) == sizeOf(taken))
      return reached[at];
    if (def)
      for (Value operand : def->getOperands())
        if (isa<IntegerType>(getElementTypeOrSelf(operand)))
          reached.insert(operand);
  }
  return taken;
}

/// Reads the capacity of an expert from the program: how many token-expert
/// pairs the expert accepts before further pairs are dropped. The capacity
/// applies to each sample or, if the program counts the pairs of an expert
/// across samples, to all samples together.
void noteCapacity(Choice &choice) {
  Value taken = choice.taken;
  while (auto reshape = taken.getDefiningOp<nn::ReshapeOp>())
    taken = reshape.getInput();
  auto select = taken.getDefiningOp<arith::SelectOp>();
  auto fits = select ? select.getCondition().getDefiningOp<arith::CmpIOp>()
                     : arith::CmpIOp();
  DenseElementsAttr most;
  if (!fits || fits.getPredicate() != arith::CmpIPredicate::slt ||
      !matchPattern(fits.getRhs(), m_Constant(&most)) || !most.isSplat())
    return;
  choice.capacity = most.getSplatValue<APInt>().getSExtValue();
  choice.capacityOf = most.getNumElements();
  auto place = fits.getLhs().getDefiningOp<nn::PositionInExpertOp>();
  if (!place || !place.getLoads())
    choice.capacityOf /= most.getType().getDimSize(0);
}

/// Returns the outermost name in a location, which is that of the node in the
/// ONNX graph; null if there is none.
NameLoc nodeOf(Location loc) {
  NameLoc node;
  loc->walk([&](Location part) {
    if (auto named = dyn_cast<NameLoc>(part); named && !node)
      node = named;
    return WalkResult::advance();
  });
  return node;
}

/// Returns the function argument from which `value` is computed by operations
/// with one operand, such as reshapes and transposes; null if another operation
/// is on the path from the argument to `value`.
BlockArgument tensorOf(Value value) {
  while (Operation *def = value.getDefiningOp()) {
    if (def->getNumOperands() != 1)
      return {};
    value = def->getOperand(0);
  }
  return cast<BlockArgument>(value);
}

/// Returns the name of the router's matrix: searching backwards from the chosen
/// expert ids, the first weight that a contraction reads. Returns "" if there
/// is none.
std::string matrixOf(func::FuncOp func, Value chosen) {
  llvm::SetVector<Operation *> reached;
  if (Operation *def = chosen.getDefiningOp())
    reached.insert(def);
  for (size_t at = 0; at < reached.size(); ++at)
    for (Value operand : reached[at]->getOperands()) {
      if (isa<nn::EinsumOp>(reached[at])) {
        BlockArgument tensor = tensorOf(operand);
        if (tensor && isOneOf(nn::roleOf(tensor),
                              {nn::Role::Parameter, nn::Role::Constant}))
          return nameOf(func, tensor.getArgNumber()).str();
      } else if (Operation *def = operand.getDefiningOp()) {
        reached.insert(def);
      }
    }
  return "";
}

std::string nameOfChoice(func::FuncOp func, Value chosen) {
  std::string found = matrixOf(func, chosen);
  StringRef matrix = found;
  matrix.consume_back(".weight");
  if (!matrix.empty())
    return matrix.str();
  NameLoc node = nodeOf(chosen.getLoc());
  return node ? node.getName().str() : "router";
}

/// Returns whether a function result depends on `value` along a path on which
/// all values are floats. Paths through integers, such as the ids of the chosen
/// experts, do not count.
bool reachesResult(Value value) {
  llvm::SetVector<Value> reached;
  reached.insert(value);
  for (size_t at = 0; at < reached.size(); ++at)
    for (Operation *user : reached[at].getUsers()) {
      if (user->hasTrait<OpTrait::IsTerminator>())
        return true;
      for (Value result : user->getResults())
        if (isa<FloatType>(getElementTypeOrSelf(result)))
          reached.insert(result);
    }
  return false;
}

/// If `value` is a broadcast of a function argument with one number per expert,
/// along the last dimension, returns this argument; otherwise returns null.
BlockArgument perExpert(Value value, int64_t experts) {
  auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
  int64_t last = typeOf(value).getRank() - 1;
  if (!broadcast || broadcast.getDims() != ArrayRef<int64_t>{last})
    return {};
  BlockArgument tensor = tensorOf(broadcast.getInput());
  return tensor && sizeOf(tensor) == experts ? tensor : BlockArgument();
}

} // namespace

BlockArgument biasOf(func::FuncOp func, const Choice &choice) {
  llvm::SetVector<Operation *> reached;
  if (Operation *def = choice.chosen.getDefiningOp())
    reached.insert(def);
  for (size_t at = 0; at < reached.size(); ++at) {
    if (auto add = dyn_cast<arith::AddFOp>(reached[at]))
      for (Value operand : add->getOperands()) {
        BlockArgument bias = perExpert(operand, choice.experts);
        if (bias && !reachesResult(bias))
          return bias;
      }
    if (isa<nn::EinsumOp, nn::SoftmaxOp, nn::SigmoidOp>(reached[at]))
      continue; // this operation computes the scores
    for (Value operand : reached[at]->getOperands())
      if (Operation *def = operand.getDefiningOp())
        reached.insert(def);
  }
  return {};
}

SmallVector<Choice> findChoices(func::FuncOp func) {
  SmallVector<Choice> choices;
  llvm::DenseSet<Value> seen;
  llvm::StringSet<> names;
  for (auto dot : func.getOps<nn::GroupedDotOp>()) {
    Choice choice;
    choice.taken = dot.getIds();
    if (!seen.insert(choice.taken).second)
      continue;
    choice.chosen = chosenOf(choice.taken);
    choice.experts = typeOf(dot.getMatrices()).getDimSize(0);
    if (auto top = choice.chosen.getDefiningOp<nn::TopKOp>())
      choice.slotsPerToken = top.getK();
    else if (choice.chosen.getDefiningOp<nn::ArgMaxOp>())
      choice.slotsPerToken = 1;
    if (choice.taken != choice.chosen)
      noteCapacity(choice);
    if (NameLoc node = nodeOf(dot.getLoc()))
      choice.product = describeLocation(node);
    std::string name = nameOfChoice(func, choice.chosen);
    choice.name = name;
    for (int64_t number = 2; !names.insert(choice.name).second; ++number)
      choice.name = name + "." + std::to_string(number);
    choices.push_back(std::move(choice));
  }
  return choices;
}

} // namespace cleave::autodiff
