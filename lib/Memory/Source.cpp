// What a person knows an operation by.

#include "cleave/Memory/Source.h"

#include "mlir/IR/Location.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

static void collect(Location location, SmallVectorImpl<StringRef> &names) {
  if (auto name = dyn_cast<NameLoc>(location)) {
    if (!llvm::is_contained(names, name.getName().getValue()))
      names.push_back(name.getName().getValue());
  } else if (auto call = dyn_cast<CallSiteLoc>(location)) {
    collect(call.getCallee(), names);
  } else if (auto fused = dyn_cast<FusedLoc>(location)) {
    for (Location part : fused.getLocations())
      collect(part, names);
  }
}

SmallVector<StringRef> cleave::namesOf(Operation *op) {
  SmallVector<StringRef> names, outer;
  collect(op->getLoc(), names);
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp())
    collect(parent->getLoc(), outer);
  llvm::erase_if(
      names, [&](StringRef name) { return llvm::is_contained(outer, name); });
  return names;
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
