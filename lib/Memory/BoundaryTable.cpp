// Builds the boundary table, the list of the named buffers for arguments and
// results of functions.

#include "cleave/Memory/BoundaryTable.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;
using namespace cleave;

StringRef BoundaryBuffer::slot() const { return pipe::slotOf(attrs); }

/// All arguments share one namespace, because the model names them. Computed
/// values have a namespace for each role, so that an output may be called
/// "loss".
static std::string keyOf(StringRef name, nn::Role role) {
  bool computed =
      nn::isOneOf(role, {nn::Role::Gradient, nn::Role::Metric, nn::Role::Tap,
                         nn::Role::Output, nn::Role::Loss, nn::Role::Weight,
                         nn::Role::Accumulator, nn::Role::Count});
  return ((computed ? nn::spell(role) : StringRef()) + "\n" + name).str();
}

static std::string bufferName(StringRef name, nn::Role role) {
  if (role == nn::Role::Gradient)
    return (name + ".grad").str();
  if (role == nn::Role::Metric || role == nn::Role::Tap)
    return (nn::spell(role) + "." + name).str();
  return name.str();
}

static DictionaryAttr attrsOf(func::FuncOp func, bool result, unsigned index) {
  auto attrs =
      result ? func.getResultAttrDict(index) : func.getArgAttrDict(index);
  return attrs ? attrs : DictionaryAttr::get(func.getContext());
}

FailureOr<BoundaryTable> BoundaryTable::collect(ModuleOp module,
                                                int64_t stage) {
  BoundaryTable table;
  for (func::FuncOp func : actionsOf(module, stage))
    if (failed(table.addPorts(func)))
      return failure();
  return table;
}

FailureOr<BoundaryTable> BoundaryTable::ofBody(func::FuncOp body) {
  BoundaryTable table;
  if (failed(table.addPorts(body)))
    return failure();
  return table;
}

LogicalResult BoundaryTable::addPorts(func::FuncOp func) {
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    if (failed(add(func, func.getArgumentTypes()[i], attrsOf(func, false, i),
                   "argument", i)))
      return failure();
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (failed(add(func, func.getResultTypes()[i], attrsOf(func, true, i),
                   "result", i)))
      return failure();
  return success();
}

FailureOr<BoundaryTable> BoundaryTable::visible(ModuleOp module) {
  BoundaryTable table;
  for (int64_t stage : stagesOf(module)) {
    FailureOr<BoundaryTable> own = collect(module, stage);
    if (failed(own))
      return failure();
    for (BoundaryBuffer &buffer : own->buffers)
      if (buffer.isVisible() &&
          table.byKey
              .try_emplace(keyOf(buffer.name, buffer.role),
                           table.buffers.size())
              .second)
        table.buffers.push_back(std::move(buffer));
  }
  return table;
}

LogicalResult BoundaryTable::add(func::FuncOp func, Type type,
                                 DictionaryAttr attrs, StringRef what,
                                 unsigned index) {
  StringRef name = nn::nameOf(attrs);
  std::optional<nn::Role> known = nn::roleOf(attrs);
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (name.empty() || !known || !tensor)
    return func.emitOpError() << what << " " << index
                              << " is not a tensor with nn.name and nn.role";
  nn::Role role = *known;
  auto [entry, isNew] = byKey.try_emplace(keyOf(name, role), buffers.size());
  auto global = attrs.getAs<TypeAttr>(dist::kGlobalTypeAttrName);
  if (isNew) {
    BoundaryBuffer buffer;
    buffer.name = name.str();
    buffer.role = role;
    buffer.type = tensor;
    buffer.globalType =
        global ? cast<RankedTensorType>(global.getValue()) : tensor;
    buffer.attrs = attrs;
    buffer.bytes = bytesOf(tensor);
    buffer.buffer = bufferName(name, role);
    while (!byBuffer.try_emplace(buffer.buffer, buffers.size()).second)
      buffer.buffer += "." + nn::spell(role).str();
    buffers.push_back(std::move(buffer));
    return success();
  }
  BoundaryBuffer &other = buffers[entry->second];
  if (other.type != tensor)
    return func.emitOpError()
           << what << " " << index << " '" << name << "' has type " << tensor
           << ", but elsewhere it has " << other.type;
  if (other.role != role)
    return func.emitOpError()
           << what << " " << index << " '" << name << "' has role "
           << nn::spell(role) << ", but elsewhere it has "
           << nn::spell(other.role);
  Attribute have = other.attrs.get(dist::kShardingAttrName),
            want = attrs.get(dist::kShardingAttrName);
  if (have && want && have != want)
    return func.emitOpError()
           << what << " " << index << " '" << name << "' has sharding " << want
           << ", but elsewhere it has " << have;
  // The attributes of all arguments and results that share a buffer are merged.
  NamedAttrList merged(other.attrs);
  for (NamedAttribute attr : attrs)
    if (!merged.get(attr.getName()))
      merged.append(attr);
  other.attrs = merged.getDictionary(func.getContext());
  if (global)
    other.globalType = cast<RankedTensorType>(global.getValue());
  return success();
}

int64_t BoundaryTable::find(StringRef name, nn::Role role) const {
  auto found = byKey.find(keyOf(name, role));
  return found == byKey.end() ? -1 : found->second;
}

/// Returns the index of the buffer of an argument or result with these
/// attributes (name and role), or -1.
static int64_t findPort(const BoundaryTable &table, DictionaryAttr attrs) {
  std::optional<nn::Role> role = nn::roleOf(attrs);
  return role ? table.find(nn::nameOf(attrs), *role) : -1;
}

int64_t BoundaryTable::ofArgument(func::FuncOp func, unsigned index) const {
  return findPort(*this, attrsOf(func, false, index));
}

int64_t BoundaryTable::ofResult(func::FuncOp func, unsigned index) const {
  return findPort(*this, attrsOf(func, true, index));
}
