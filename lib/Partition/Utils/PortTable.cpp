//===- PortTable.cpp - the table of names at function boundaries ----------===//

#include "cleave/Partition/Utils/PortTable.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::partition;

Type Port::type() const {
  func::FuncOp f = func;
  return isResult ? f.getResultTypes()[index] : f.getArgumentTypes()[index];
}

DictionaryAttr Port::attrs() const {
  func::FuncOp f = func;
  return isResult ? f.getResultAttrDict(index) : f.getArgAttrDict(index);
}

Attribute Port::attr(StringRef name) const {
  func::FuncOp f = func;
  return isResult ? f.getResultAttr(index, name) : f.getArgAttr(index, name);
}

StringRef Port::name() const { return nn::nameOf(attrs()); }

std::optional<nn::Role> Port::role() const { return nn::roleOf(attrs()); }

dist::ShardingAttr Port::sharding() const {
  return dyn_cast_or_null<dist::ShardingAttr>(attr(dist::kShardingAttrName));
}

Location Port::loc() const {
  func::FuncOp f = func;
  return isResult ? f.getLoc() : f.getArgument(index).getLoc();
}

std::string cleave::partition::describe(const Port &port) {
  StringRef role = nn::spell(port.role()), name = port.name();
  std::string kind = port.isResult ? "result" : "argument",
              index = std::to_string(port.index);
  if (name.empty() || name == kind + index) // the default name
    return kind + " " + index;
  return (role.empty() ? kind + " " + index : role.str()) + " '" + name.str() +
         "'";
}

SmallVector<Port> cleave::partition::portsOf(ModuleOp module) {
  SmallVector<Port> ports;
  for (auto func : module.getOps<func::FuncOp>()) {
    if (func.isExternal())
      continue;
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      ports.push_back({func, false, i});
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      ports.push_back({func, true, i});
  }
  return ports;
}

SmallVector<SmallVector<Port>>
cleave::partition::boundaryTable(ModuleOp module) {
  llvm::MapVector<std::pair<std::optional<nn::Role>, StringRef>,
                  SmallVector<Port>>
      groups;
  for (const Port &port : portsOf(module))
    if (!port.name().empty())
      groups[{port.role(), port.name()}].push_back(port);
  SmallVector<SmallVector<Port>> table;
  for (auto &[key, ports] : groups)
    table.push_back(std::move(ports));
  return table;
}

func::FuncOp cleave::partition::updateFunction(ModuleOp module) {
  for (const Port &port : portsOf(module))
    if (!port.isResult && port.role() == nn::Role::Gradient)
      return port.func;
  return {};
}

bool cleave::partition::isForPeople(const Port &port) {
  func::FuncOp func = port.func;
  return port.isResult && (func.getName() == nn::kLossFunc ||
                           func.getName() == nn::kForwardFunc);
}

/// Returns whether both shardings split each dimension by the same axes. If
/// `partially` is true, also compares the axes over which the values are
/// partial.
static bool alike(dist::ShardingAttr a, dist::ShardingAttr b, bool partially) {
  if (a == b || !a || !b)
    return a == b;
  return a.getMesh() == b.getMesh() && a.getDims() == b.getDims() &&
         (!partially || (a.getPartial() == b.getPartial() &&
                         (a.getPartial().empty() ||
                          a.getPartialKind() == b.getPartialKind())));
}

LogicalResult cleave::partition::verifyBoundary(ModuleOp module) {
  bool failed = false;
  for (ArrayRef<Port> group : boundaryTable(module)) {
    const Port *found =
        llvm::find_if(group, [](const Port &p) { return !isForPeople(p); });
    const Port &first = found == group.end() ? group.front() : *found;
    for (const Port &port : group) {
      auto where = [](const Port &p) {
        func::FuncOp f = p.func;
        return ("@" + f.getName() + (p.isResult ? " result " : " argument ") +
                Twine(p.index))
            .str();
      };
      if (port.type() != first.type() ||
          !alike(port.sharding(), first.sharding(), !isForPeople(port))) {
        InFlightDiagnostic error = emitError(port.loc())
                                   << nn::spell(port.role()) << " '"
                                   << port.name() << "' is " << port.type();
        if (port.sharding())
          error << " with " << port.sharding();
        error << " in " << where(port) << ", expected as in " << where(first)
              << ": " << first.type();
        if (first.sharding())
          error << " with " << first.sharding();
        failed = true;
      }
    }
  }
  return failure(failed);
}
