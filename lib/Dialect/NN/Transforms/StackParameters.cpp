// Some parameters are only read after the model has stacked them to one tensor.
// This file merges such parameters into one. It also sorts the operations of a
// function.

#include "StackParameters.h"
#include "Dataflow.h"

#include "cleave/Dialect/NN/IR/Parts.h"

using namespace mlir;

namespace cleave::nn {

namespace {

class Stacker {
public:
  explicit Stacker(func::FuncOp function)
      : function(function), builder(function.getContext()) {}

  void run() {
    SmallVector<ConcatOp> stacks(function.getOps<ConcatOp>());
    for (ConcatOp op : stacks)
      visit(op);
    llvm::BitVector dead(function.getNumArguments());
    for (BlockArgument part : parts)
      dead.set(part.getArgNumber());
    (void)function.eraseArguments(dead);
  }

private:
  /// If `slice`, an operand of the stacking, is a whole parameter (possibly
  /// reshaped), returns the parameter; otherwise null.
  BlockArgument partOf(Value slice) {
    if (auto reshape = slice.getDefiningOp<ReshapeOp>())
      slice = reshape.getInput();
    auto argument = dyn_cast<BlockArgument>(slice);
    if (!argument)
      return nullptr;
    unsigned index = argument.getArgNumber();
    bool isWhole = roleOf(argument) == Role::Parameter &&
                   !function.getArgAttr(index, kTiedAttr) &&
                   !function.getArgAttr(index, kViewAttr) &&
                   !function.getArgAttr(index, kPartsAttr);
    return isWhole ? argument : nullptr;
  }

  void visit(ConcatOp op) {
    SmallVector<BlockArgument> found;
    if (op.getDim() != 0)
      return;
    for (Value slice : op.getInputs()) {
      BlockArgument part = partOf(slice);
      if (!part || shapeOf(slice)[0] != 1 ||
          shapeOf(slice).drop_front() != shapeOf(part) ||
          llvm::is_contained(found, part))
        return;
      found.push_back(part);
    }
    auto known = llvm::find_if(done, [&](auto &s) { return s.first == found; });
    if (known != done.end()) {
      op.replaceAllUsesWith(known->second);
      op.erase();
      return;
    }
    if (found.size() < 2 ||
        llvm::any_of(found, [&](BlockArgument p) { return parts.count(p); }))
      return;
    stack(op, found);
  }

  void stack(ConcatOp op, ArrayRef<BlockArgument> found) {
    unsigned first = found.front().getArgNumber(),
             at = function.getNumArguments();
    NamedAttrList attributes(function.getArgAttrDict(first));
    attributes.erase(kDataAttr);
    SmallVector<Attribute> entries;
    for (BlockArgument part : found) {
      DictionaryAttr own = function.getArgAttrDict(part.getArgNumber());
      entries.push_back(PartAttr::get(function.getContext(),
                                      builder.getStringAttr(nameOf(own)),
                                      dataOf(own)));
    }
    attributes.set(kPartsAttr, builder.getArrayAttr(entries));
    (void)function.insertArgument(
        at, op.getType(), attributes.getDictionary(function.getContext()),
        found.front().getLoc());
    Value whole = function.getArgument(at);
    op.replaceAllUsesWith(whole);
    llvm::SetVector<Value> slices(llvm::from_range, op.getInputs());
    op.erase();
    for (Value slice : slices)
      if (Operation *reshape = slice.getDefiningOp();
          reshape && reshape->use_empty())
        reshape->erase();
    builder.setInsertionPointToStart(&function.front());
    for (auto [index, argument] : llvm::enumerate(found)) {
      BlockArgument part = argument;
      parts.insert(part);
      if (part.use_empty())
        continue;
      Dims offsets(rankOf(whole), 0), sizes(shapeOf(whole)),
          strides(rankOf(whole), 1);
      offsets[0] = index;
      sizes[0] = 1;
      Value slice = SliceOp::create(builder, part.getLoc(), whole, offsets,
                                    sizes, strides);
      part.replaceAllUsesWith(
          reshapeTo(builder, part.getLoc(), slice, shapeOf(part)));
    }
    done.push_back({SmallVector<BlockArgument>(found), whole});
  }

  func::FuncOp function;
  OpBuilder builder;
  SmallVector<std::pair<SmallVector<BlockArgument>, Value>> done;
  llvm::DenseSet<BlockArgument> parts;
};

} // namespace

void stackParameters(func::FuncOp function) { Stacker(function).run(); }

void sortByUse(func::FuncOp function) {
  Block &block = function.front();
  Operation *end = block.getTerminator();
  // Sorts operations so that each follows the operations that compute its
  // operands. The operations that compute the first operand come first.
  llvm::SetVector<Operation *> order;
  llvm::SetVector<Value> arguments;
  llvm::SmallVector<std::pair<Operation *, unsigned>> path = {{end, 0}};
  llvm::DenseSet<Operation *> entered = {end};
  while (!path.empty()) {
    auto &[op, next] = path.back();
    if (next == op->getNumOperands()) {
      order.insert(op);
      path.pop_back();
      continue;
    }
    Value operand = op->getOperand(next++);
    if (isa<BlockArgument>(operand))
      arguments.insert(operand);
    else if (entered.insert(operand.getDefiningOp()).second)
      path.push_back({operand.getDefiningOp(), 0});
  }
  for (Operation *op : order)
    if (op != end)
      op->moveBefore(end);
  // Sorts arguments: first parameters, then constants, both in the order of
  // their first use, then all other arguments.
  auto kindOf = [&](unsigned index) {
    std::optional<Role> role = roleOf(function, index);
    return role == Role::Parameter ? 0 : role == Role::Constant ? 1 : 2;
  };
  unsigned count = function.getNumArguments();
  SmallVector<unsigned> from = llvm::to_vector(llvm::seq<unsigned>(0, count));
  auto useOf = [&](unsigned index) {
    return llvm::find(arguments, Value(block.getArgument(index))) -
           arguments.begin();
  };
  llvm::sort(from, [&](unsigned a, unsigned b) {
    int kind = kindOf(a);
    if (kind != kindOf(b))
      return kind < kindOf(b);
    return kind < 2 && useOf(a) != useOf(b) ? useOf(a) < useOf(b) : a < b;
  });
  SmallVector<DictionaryAttr> attributes;
  for (unsigned place = 0; place < count; ++place) {
    BlockArgument old = block.getArgument(from[place]);
    old.replaceAllUsesWith(block.addArgument(old.getType(), old.getLoc()));
    attributes.push_back(function.getArgAttrDict(from[place]));
  }
  block.eraseArguments(0, count);
  function.setFunctionType(FunctionType::get(function.getContext(),
                                             block.getArgumentTypes(),
                                             function.getResultTypes()));
  function.setAllArgAttrs(attributes);
}

} // namespace cleave::nn
