// Shardings of values that several pipeline stages share.

#include "SharedShardings.h"

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Support/Errors.h"
#include "cleave/io/Pattern.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstring>
#include <set>

using namespace mlir;

namespace cleave::compiler {

static std::string keyOf(DictionaryAttr attrs) {
  return (nn::spell(nn::roleOf(attrs)) + " " + nn::nameOf(attrs)).str();
}

/// Returns the axes over which a dimension is sharded. The axes in `sharded`
/// are left out, because ZeRO adds them later.
static std::vector<std::string>
withoutSharded(dist::DimShardingAttr dim,
               const std::vector<std::string> &sharded) {
  std::vector<std::string> names;
  for (dist::AxisRefAttr axis : dim.getAxes()) {
    StringRef name = axis.getName().getValue();
    if (llvm::is_contained(sharded, name))
      continue;
    names.push_back(name.str());
    if (!axis.isWhole())
      names.back() += ":(" + std::to_string(axis.getPre()) + ")" +
                      std::to_string(axis.getSize());
  }
  return names;
}

static bool isHandedOver(StringRef key) {
  return key.starts_with("activation ") || key.starts_with("cotangent ");
}

void SharedShardings::pin(ModuleOp stage) {
  for (auto func : stage.getOps<func::FuncOp>()) {
    BoundaryAttrs boundary(func);
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (auto sharding = known(func.getArgAttrDict(i)))
        boundary.setArgument(i, dist::kShardingAttrName, sharding);
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (auto sharding = known(func.getResultAttrDict(i)))
        boundary.setResult(i, dist::kShardingAttrName, sharding);
    boundary.apply();
  }
}

std::vector<ShardConfig>
SharedShardings::conflicts(ModuleOp stage,
                           const std::vector<std::string> &sharded) {
  std::vector<ShardConfig> overrides;
  std::set<std::string> seen;
  for (auto func : stage.getOps<func::FuncOp>())
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      DictionaryAttr attrs = func.getArgAttrDict(i);
      std::string key = keyOf(attrs);
      auto found = entries.find(key);
      if (!StringRef(key).starts_with("parameter ") || found == entries.end() ||
          !found->second.sharding ||
          attrs.get(dist::kShardingAttrName) == found->second.sharding ||
          !seen.insert(key).second)
        continue;
      ShardConfig &shard = overrides.emplace_back();
      shard.match =
          escapePattern(StringRef(key).drop_front(strlen("parameter ")));
      for (dist::DimShardingAttr dim : found->second.sharding.getDims())
        shard.dims.push_back(withoutSharded(dim, sharded));
    }
  return overrides;
}

LogicalResult SharedShardings::note(ModuleOp stage) {
  for (auto func : stage.getOps<func::FuncOp>()) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (failed(note(func.getArgumentTypes()[i], func.getArgAttrDict(i))))
        return failure();
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (failed(note(func.getResultTypes()[i], func.getResultAttrDict(i))))
        return failure();
  }
  return success();
}

dist::ShardingAttr SharedShardings::known(DictionaryAttr attrs) {
  std::string key = keyOf(attrs);
  if (!isHandedOver(key))
    return {};
  auto found = entries.find(key);
  if (found == entries.end() && StringRef(key).starts_with("cotangent ")) {
    // A cotangent without a recorded sharding has that of its activation.
    StringRef name = StringRef(key).drop_front(strlen("cotangent "));
    name.consume_back(".grad");
    found = entries.find(("activation " + name).str());
  }
  if (found == entries.end())
    return {};
  const Entry &entry = found->second;
  return entry.inside ? entry.inside : entry.sharding;
}

LogicalResult SharedShardings::note(Type type, DictionaryAttr attrs) {
  std::string key = keyOf(attrs);
  if (!isHandedOver(key) && !StringRef(key).starts_with("parameter ") &&
      !StringRef(key).starts_with("state "))
    return success();
  auto sharding = attrs.getAs<dist::ShardingAttr>(dist::kShardingAttrName);
  auto inside = attrs.getAs<dist::ShardingAttr>(kInsideAttr);
  auto [entry, isNew] = entries.try_emplace(key, Entry{type, sharding, inside});
  if (isNew ||
      (entry->second.type == type && entry->second.sharding == sharding))
    return success();
  return configError(type.getContext())
         << key << " is sharded in different ways on two stages: "
         << entry->second.type << " with " << entry->second.sharding << ", and "
         << type << " with " << sharding
         << "; pin it with [[shard]], or cut elsewhere "
            "(parallel.pipeline.stages)";
}

} // namespace cleave::compiler
