// What a person knows an operation by.

#include "cleave/Memory/Source.h"

#include "cleave/Support/Locations.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

/// Named locations in order, each once: a sum over all parameters has as many
/// as they are.
using Names = llvm::SmallSetVector<NameLoc, 8>;

static void collect(Location location, Names &names) {
  if (auto name = dyn_cast<NameLoc>(location)) {
    names.insert(name);
  } else if (auto call = dyn_cast<CallSiteLoc>(location)) {
    collect(call.getCallee(), names);
  } else if (auto fused = dyn_cast<FusedLoc>(location)) {
    for (Location part : fused.getLocations())
      collect(part, names);
  }
}

/// The names in the operation's location, described, each once. Those of what
/// is around it, such as the model's path, are left out.
static SmallVector<std::string> namesOf(Operation *op) {
  Names names, outer;
  collect(op->getLoc(), names);
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp())
    collect(parent->getLoc(), outer);
  SmallVector<std::string> own;
  llvm::StringSet<> known;
  for (NameLoc name : names)
    if (!outer.contains(name))
      if (std::string text = cleave::describeLocation(name);
          known.insert(text).second)
        own.push_back(std::move(text));
  return own;
}

std::string cleave::sourceOf(Operation *op) {
  SmallVector<std::string> names = namesOf(op);
  return names.empty() ? op->getName().getStringRef().str() : names[0];
}

std::string cleave::sourcesOf(Operation *op) {
  SmallVector<std::string> names = namesOf(op);
  if (names.size() < 2)
    return sourceOf(op);
  if (names.size() == 2)
    return names[0] + ", " + names[1];
  return names[0] + " and " + std::to_string(names.size() - 1) + " others";
}
