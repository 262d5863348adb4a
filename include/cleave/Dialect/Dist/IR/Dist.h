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

/// On arguments and results of functions: the sharding. On operations: an array
/// with one sharding for each result.
inline constexpr llvm::StringLiteral kShardingAttrName = "dist.sharding";
/// On arguments and results of local functions: the type of the unsharded
/// tensor.
inline constexpr llvm::StringLiteral kGlobalTypeAttrName = "dist.global_type";
/// On operations between dist-plan-ops and dist-partition: `factors`, the axes
/// of each factor, and `carry`, the axes over which operands are read as
/// partial values.
inline constexpr llvm::StringLiteral kPlanAttrName = "dist.plan";

/// On the `arith.select` that replaces padding by the identity of a reduction:
/// unit.
inline constexpr llvm::StringLiteral kPadMaskAttrName = "dist.pad_mask";
/// On the `nn.pad` that makes a dimension as long as its tiles: unit. The
/// elements that this pad adds are padding, while those of other pads are
/// regular elements.
inline constexpr llvm::StringLiteral kTilePaddingAttrName = "dist.tile_padding";

/// Reports an error through `emitError` if the sharding does not fit the type
/// or the mesh (constraints S2 to S4). `type` may be null.
mlir::LogicalResult
verifySharding(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
               ShardingAttr sharding, mlir::RankedTensorType type,
               MeshAttr mesh);

/// Reports an error through `emitError` if the axes do not fit the mesh
/// (constraint C1).
mlir::LogicalResult
verifyAxes(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
           llvm::ArrayRef<AxisRefAttr> axes, MeshAttr mesh);

/// A run of elements of a window that one member of the group holds. For i
/// below `count`, element `targetBegin + i` of the target's window is element
/// `sourceBegin + i * stride` of the source's tile.
struct WindowPiece {
  int64_t source, target;
  int64_t sourceBegin, targetBegin, count;
};
/// Returns the pieces of all windows, by target, for a group of `groupSize`
/// ranks.
llvm::SmallVector<WindowPiece> windowPieces(WindowOp op, int64_t groupSize);

} // namespace cleave::dist

#endif
