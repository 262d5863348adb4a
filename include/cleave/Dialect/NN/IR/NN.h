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
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "cleave/Dialect/NN/IR/NNDialect.h.inc"
#include "cleave/Dialect/NN/IR/NNEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/NN/IR/NNAttrs.h.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/NN/IR/NNOps.h.inc"

namespace cleave::nn {

/// Whether a product of `operand`s may have elements of type `result`: bf16 is
/// accumulated in f32, which need not be rounded.
inline bool isProductType(mlir::Type operand, mlir::Type result) {
  return result == operand || (operand.isBF16() && result.isF32());
}

/// Names of the discardable attributes on function arguments and results.
inline constexpr llvm::StringLiteral kNameAttr = "nn.name";
inline constexpr llvm::StringLiteral kRoleAttr = "nn.role";

/// What follows a parameter's name in that of its f32 copy, a piece of state.
inline constexpr llvm::StringLiteral kMasterSuffix = ".master";

/// On an arith.truncf: it rounds what is stored. A kernel that also widens the
/// result may read the value as it was. Other roundings are the model's own.
inline constexpr llvm::StringLiteral kStorageAttr = "nn.storage";

/// Names of the functions of the logical program.
inline constexpr llvm::StringLiteral kLossFunc = "loss";
inline constexpr llvm::StringLiteral kLossTrainFunc = "loss_train";
inline constexpr llvm::StringLiteral kLossGradFunc = "loss_grad";
inline constexpr llvm::StringLiteral kUpdateFunc = "update";
inline constexpr llvm::StringLiteral kInitStateFunc = "init_state";
inline constexpr llvm::StringLiteral kForwardFunc = "forward";

/// A splat constant of `type`; integers are rounded to nearest.
mlir::Value createSplat(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::RankedTensorType type, double value);

} // namespace cleave::nn

#endif
