// Emits the boundary table of a program.

#include "Emit.h"

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Memory/LibraryCalls.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

int64_t target::parameterOf(const BoundaryTable &table,
                            const BoundaryBuffer &buffer) {
  auto named = [&](StringRef name) {
    for (auto [index, other] : llvm::enumerate(table.buffers))
      if (other.name == name &&
          nn::isOneOf(other.role, {nn::Role::Parameter, nn::Role::Buffer}))
        return int64_t(index);
    return int64_t(-1);
  };
  if (buffer.role == nn::Role::Gradient)
    return named(buffer.name);
  if (buffer.role != nn::Role::State)
    return -1;
  // An optimizer state is called PARAMETER.SLOT. The name of a parameter may
  // contain dots, the name of a slot (a kind of state) may not.
  return named(StringRef(buffer.name).rsplit('.').first);
}

void target::readOffsets(func::FuncOp func, BoundaryTable &table) {
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    if (auto where = func.getArgAttrOfType<rt::AddressAttr>(i, rt::kBufferAttr))
      table.buffers[table.ofArgument(func, i)].offset = where.getOffset();
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (auto where =
            func.getResultAttrOfType<rt::AddressAttr>(i, rt::kBufferAttr))
      table.buffers[table.ofResult(func, i)].offset = where.getOffset();
}

static std::vector<program::SubAxis> subAxes(dist::MeshAttr mesh,
                                             ArrayRef<dist::AxisRefAttr> axes) {
  std::vector<program::SubAxis> result;
  for (dist::AxisRefAttr axis : axes)
    for (auto [index, candidate] : llvm::enumerate(mesh.getAxes()))
      if (candidate.getName() == axis.getName())
        result.push_back({int32_t(index), axis.isWhole() ? 1 : axis.getPre(),
                          dist::axisSize(mesh, axis)});
  return result;
}

LogicalResult target::emitBoundary(const BoundaryTable &table,
                                   dist::MeshAttr mesh, Operation *where,
                                   program::Program &program) {
  auto numbers = [](ArrayRef<int64_t> values) {
    return std::vector<int64_t>(values.begin(), values.end());
  };
  for (const BoundaryBuffer &buffer : table.buffers) {
    program::Boundary entry;
    entry.name = buffer.buffer;
    entry.role = nn::spell(buffer.role).str();
    if (nn::isOneOf(buffer.role, {nn::Role::Parameter, nn::Role::Buffer,
                                  nn::Role::Constant, nn::Role::Output}))
      entry.onnxName = buffer.name;
    nn::ViewAttr view = nn::viewOf(buffer.attrs);
    if (int64_t parameter = parameterOf(table, buffer); parameter >= 0) {
      entry.of = table.buffers[parameter].buffer;
      // In files, states and gradients have the shape that the parameter has in
      // its file.
      if (!view)
        view = nn::viewOf(table.buffers[parameter].attrs);
    }
    FailureOr<program::DType> dtype = dtypeOf(buffer.type.getElementType());
    if (failed(dtype))
      return where->emitError("'")
             << buffer.name << "' has element type "
             << buffer.type.getElementType() << ", which the runtime lacks";
    entry.dtype = *dtype;
    entry.globalShape = numbers(buffer.globalType.getShape());
    entry.localShape = numbers(buffer.type.getShape());
    if (view) {
      entry.globalShape = numbers(view.getShape());
      entry.viewShape = numbers(view.getView());
      if (view.getPermutation())
        entry.viewPerm = numbers(view.getPermutation());
    }
    auto sharding =
        buffer.attrs.getAs<dist::ShardingAttr>(dist::kShardingAttrName);
    if (sharding && mesh) {
      for (dist::DimShardingAttr dim : sharding.getDims())
        entry.sharding.push_back(subAxes(mesh, dim.getAxes()));
      entry.partial = subAxes(mesh, sharding.getPartial());
      entry.partialOp =
          static_cast<program::ReduceOp>(sharding.getPartialKind());
    }
    entry.buffer.arena = rt::kStateArena;
    entry.buffer.offset = buffer.offset;
    program.boundary.push_back(std::move(entry));
  }
  return success();
}
