// What a person knows an operation by.

#include "cleave/Memory/Source.h"

#include "mlir/IR/Location.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

/// Names in order, each once: a sum over all parameters has as many as they
/// are.
using Names = llvm::SmallSetVector<StringAttr, 8>;

static void collect(Location location, Names &names) {
  if (auto name = dyn_cast<NameLoc>(location)) {
    names.insert(name.getName());
  } else if (auto call = dyn_cast<CallSiteLoc>(location)) {
    collect(call.getCallee(), names);
  } else if (auto fused = dyn_cast<FusedLoc>(location)) {
    for (Location part : fused.getLocations())
      collect(part, names);
  }
}

SmallVector<StringRef> cleave::namesOf(Operation *op) {
  Names names, outer;
  collect(op->getLoc(), names);
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp())
    collect(parent->getLoc(), outer);
  SmallVector<StringRef> own;
  for (StringAttr name : names)
    if (!outer.contains(name))
      own.push_back(name.getValue());
  return own;
}

std::string cleave::sourceOf(Operation *op) {
  SmallVector<StringRef> names = namesOf(op);
  return (names.empty() ? op->getName().getStringRef() : names[0]).str();
}

std::string cleave::sourcesOf(Operation *op) {
  SmallVector<StringRef> names = namesOf(op);
  if (names.size() < 2)
    return sourceOf(op);
  if (names.size() == 2)
    return (names[0] + ", " + names[1]).str();
  return (names[0] + " and " + Twine(names.size() - 1) + " others").str();
}
