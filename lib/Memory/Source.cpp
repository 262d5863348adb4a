// Names an operation in messages to the user by where it comes from in the
// model: by its module path and source line, the node of the model's graph, or
// the parameter.

#include "cleave/Memory/Source.h"

#include "cleave/Support/Locations.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

/// Distinct named locations in order. For example, a sum over all parameters
/// has one location per parameter.
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

/// Returns the named locations of an operation, without enclosing ones such as
/// the model's path.
static SmallVector<NameLoc> namesOf(Operation *op) {
  Names names, outer;
  collect(op->getLoc(), names);
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp())
    collect(parent->getLoc(), outer);
  SmallVector<NameLoc> own;
  for (NameLoc name : names)
    if (!outer.contains(name))
      own.push_back(name);
  return own;
}

std::string cleave::sourceOf(Operation *op) {
  SmallVector<NameLoc> names = namesOf(op);
  return names.empty() ? op->getName().getStringRef().str()
                       : cleave::describeLocation(names[0]);
}

std::string cleave::sourcesOf(Operation *op) {
  // Different nodes may have the same source.
  llvm::SmallSetVector<StringAttr, 8> sources;
  for (NameLoc name : namesOf(op))
    sources.insert(
        StringAttr::get(op->getContext(), cleave::describeLocation(name)));
  if (sources.size() < 2)
    return sourceOf(op);
  std::string first = sources[0].str();
  if (sources.size() == 2)
    return first + ", " + sources[1].str();
  return first + " and " + std::to_string(sources.size() - 1) + " others";
}
