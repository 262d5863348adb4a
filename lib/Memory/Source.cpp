// What a person knows an operation by.

#include "cleave/Memory/Source.h"

#include "mlir/IR/Location.h"

using namespace mlir;

std::string cleave::nameInLocation(Location location) {
  if (auto name = dyn_cast<NameLoc>(location))
    return name.getName().str();
  if (auto call = dyn_cast<CallSiteLoc>(location))
    return nameInLocation(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(location))
    for (Location part : fused.getLocations())
      if (std::string name = nameInLocation(part); !name.empty())
        return name;
  return "";
}

std::string cleave::sourceOf(Operation *op) {
  std::string name = nameInLocation(op->getLoc());
  return name.empty() ? op->getName().getStringRef().str() : name;
}
