// Verifier and command interface methods of rt.repeat.

#include "RTVerify.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::rt;

LogicalResult RepeatOp::verify() {
  auto check = [&](Value value, int64_t size, StringRef what) -> LogicalResult {
    RankedTensorType type = typeOf(value);
    if (type.getRank() > 0 && type.getDimSize(0) == size)
      return success();
    return emitOpError("has ")
           << what << " of type " << type // (RP2)
           << ", expected dimension 0 to have " << size << " elements";
  };
  if (getNumResults() < getPairs().size() + (getHasScratch() ? 1 : 0)) // (RP3)
    return emitOpError("has ") << getPairs().size() << " pairs, but "
                               << getNumResults() << " results";
  for (auto [pair, result] : llvm::zip(getPairs(), getResults())) {
    if (failed(check(pair, 2, "a pair")))
      return failure();
    if (pair.getType() != result.getType()) // (RP3)
      return emitOpError("updates a pair of type ")
             << pair.getType() << " in place, but the result has type "
             << result.getType();
  }
  for (Value slice : getSlices())
    if (failed(check(slice, getTrips(), "a slice")))
      return failure();
  for (Value stacked : getStacked())
    if (failed(check(stacked, getTrips(), "a stacked result")))
      return failure();
  if (Value scratch = getScratchResult();
      scratch && !typeOf(scratch).getElementType().isInteger(8)) // (RP4)
    return emitOpError("has scratch memory of type ")
           << scratch.getType() << ", expected a tensor of i8";
  return success();
}

/// Returns whether `body` is `function`, or runs it by its own rt.repeat
/// commands.
static bool runs(FunctionOpInterface body, FunctionOpInterface function,
                 SymbolTableCollection &symbols) {
  SmallVector<Operation *> todo = {body};
  llvm::SmallPtrSet<Operation *, 4> seen = {body};
  while (!todo.empty()) {
    Operation *next = todo.pop_back_val();
    if (next == function)
      return true;
    next->walk([&](RepeatOp repeat) {
      Operation *inner =
          symbols.lookupNearestSymbolFrom(repeat, repeat.getBodyAttr());
      if (inner && seen.insert(inner).second)
        todo.push_back(inner);
    });
  }
  return false;
}

LogicalResult RepeatOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto body = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
      *this, getBodyAttr());
  if (!body || !body->hasAttr(kBodyAttr)) // (RP3)
    return emitOpError("body ")
           << getBodyAttr() << " is not a function with " << kBodyAttr;
  auto ofTrip = [](Type type) -> Type {
    auto tensor = cast<RankedTensorType>(type);
    return tensor.clone(tensor.getShape().drop_front());
  };
  SmallVector<Type> arguments, results;
  for (Value value : llvm::concat<Value>(SmallVector<Value>(getPairs()),
                                         SmallVector<Value>(getSlices())))
    arguments.push_back(ofTrip(value.getType()));
  llvm::append_range(arguments, getCaptures().getTypes());
  for (Value value : getResults().drop_back(getHasScratch() ? 1 : 0))
    results.push_back(ofTrip(value.getType()));
  if (!llvm::equal(body.getArgumentTypes(), arguments) ||
      !llvm::equal(body.getResultTypes(), results)) // (RP3)
    return emitOpError("operands and results of a trip do not have the types "
                       "of ")
           << getBodyAttr();
  if (runs(body, (*this)->getParentOfType<FunctionOpInterface>(), symbols))
    return emitOpError("is run by its own body ") << getBodyAttr(); // (RP5)
  return success();
}

FunctionOpInterface RepeatOp::lookupBody() {
  return SymbolTable::lookupNearestSymbolFrom<FunctionOpInterface>(
      *this, getBodyAttr());
}

SmallVector<Reuse> RepeatOp::getReuse() {
  SmallVector<Reuse> reuse;
  for (unsigned index = 0; index < getPairs().size(); ++index)
    reuse.push_back({index, index, /*required=*/true});
  return reuse;
}

Value RepeatOp::getScratchResult() {
  return getHasScratch() ? getResults().back() : Value();
}

bool RepeatOp::needsFixedOperands() { return true; }

int64_t RepeatOp::getFlops() {
  int64_t flops = 0;
  if (FunctionOpInterface body = lookupBody())
    body->walk(
        [&](CommandOpInterface command) { flops += command.getFlops(); });
  return int64_t(getTrips()) * flops;
}
