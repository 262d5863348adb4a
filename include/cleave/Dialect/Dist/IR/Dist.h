//===- Dist.h - the sharding dialect ----------------------------*- C++ -*-===//
//
// Meshes, shardings, constraints and collectives. See Sharding.h for arithmetic
// on meshes and shardings.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_DIALECT_DIST_IR_DIST_H
#define CLEAVE_DIALECT_DIST_IR_DIST_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "cleave/Dialect/Dist/IR/DistDialect.h.inc"
#include "cleave/Dialect/Dist/IR/DistEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/Dist/IR/DistAttrs.h.inc"

#include "cleave/Dialect/Dist/IR/DistInterfaces.h.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/Dist/IR/DistOps.h.inc"

namespace cleave::dist {

/// Attribute of arguments and results of functions: their sharding. On an
/// operation, the attribute is an array with one sharding for each result of
/// the operation.
inline constexpr llvm::StringLiteral kShardingAttrName = "dist.sharding";
/// Attribute of arguments and results of per-rank functions, whose tensors are
/// tiles: the type of the unsharded tensor.
inline constexpr llvm::StringLiteral kGlobalTypeAttrName = "dist.global_type";
/// Attribute of operations between the passes dist-plan-ops and dist-partition.
/// Its entry `factors` has the mesh axes that split each factor of the
/// operation's sharding rule. Its entry `carry` has the axes over which
/// operands are read as partial values.
inline constexpr llvm::StringLiteral kPlanAttrName = "dist.plan";

/// Unit attribute of the `arith.select` that replaces padding by the identity
/// element of a reduction.
inline constexpr llvm::StringLiteral kPadMaskAttrName = "dist.pad_mask";
/// Unit attribute of the `nn.pad` that lengthens a dimension to a whole number
/// of equal tiles. The elements that this pad adds are padding with undefined
/// content, while those that other pads add are regular elements.
inline constexpr llvm::StringLiteral kTilePaddingAttrName = "dist.tile_padding";

/// Reports an error through `emitError` if the sharding does not fit the type
/// or the mesh: it must have one entry for each dimension of the tensor, its
/// axes must be axes of the mesh, and its sub-axes must divide their axes.
/// (These are the constraints S2 to S4 of `#dist.sharding`.) `type` may be
/// null.
mlir::LogicalResult
verifySharding(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
               ShardingAttr sharding, mlir::RankedTensorType type,
               MeshAttr mesh);

/// Reports an error through `emitError` if the axes of a collective do not fit
/// the mesh: each must be an axis of the mesh, none may be used twice, and
/// sub-axes must divide their axes. (This is the constraint C1 of collectives.)
mlir::LogicalResult
verifyAxes(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
           llvm::ArrayRef<AxisRefAttr> axes, MeshAttr mesh);

/// A run of elements that one rank receives from one other rank in a
/// dist.window. The result of this operation on a rank is called the window of
/// the rank. For i below `count`, element `targetBegin + i` in the window of
/// rank `target` of the group is element `sourceBegin + i * stride` in the tile
/// of rank `source`.
struct WindowPiece {
  int64_t source, target;
  int64_t sourceBegin, targetBegin, count;
};
/// Returns the runs of elements from which the windows of all ranks of a group
/// of `groupSize` ranks are composed, sorted by the rank that receives the run.
llvm::SmallVector<WindowPiece> windowPieces(WindowOp op, int64_t groupSize);

} // namespace cleave::dist

#endif
