// The nn dialect: operations, enums and small helpers.

#ifndef CLEAVE_DIALECT_NN_IR_NN_H
#define CLEAVE_DIALECT_NN_IR_NN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "cleave/Dialect/NN/IR/NNDialect.h.inc"
#include "cleave/Dialect/NN/IR/NNEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/NN/IR/NNAttrs.h.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/NN/IR/NNOps.h.inc"

namespace cleave::nn {

/// Returns whether a product of operands of type `operand` may have a result of
/// type `result`. Products of bf16 are accumulated in f32, so their result may
/// be f32 as well.
inline bool isProductType(mlir::Type operand, mlir::Type result) {
  return result == operand || (operand.isBF16() && result.isF32());
}

/// Names of the discardable attributes on function arguments and results.
inline constexpr llvm::StringLiteral kNameAttr = "nn.name";
inline constexpr llvm::StringLiteral kRoleAttr = "nn.role";

/// The name of a parameter with this suffix is the name of its f32 copy, a
/// tensor of the optimizer state.
inline constexpr llvm::StringLiteral kMasterSuffix = ".master";

/// Unit attribute of an arith.truncf that only rounds a value for storage. A
/// kernel that extends the result again may use the unrounded value instead. An
/// arith.truncf without the attribute belongs to the model, so its rounding
/// must be kept.
inline constexpr llvm::StringLiteral kStorageAttr = "nn.storage";

/// Names of the functions of a program in nn IR.
inline constexpr llvm::StringLiteral kLossFunc = "loss";
inline constexpr llvm::StringLiteral kLossTrainFunc = "loss_train";
inline constexpr llvm::StringLiteral kLossGradFunc = "loss_grad";
inline constexpr llvm::StringLiteral kUpdateFunc = "update";
inline constexpr llvm::StringLiteral kInitStateFunc = "init_state";
inline constexpr llvm::StringLiteral kForwardFunc = "forward";

/// Creates a splat constant of `type`; the value of an integer type is rounded
/// to nearest.
mlir::Value createSplat(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::RankedTensorType type, double value);

} // namespace cleave::nn

#endif
