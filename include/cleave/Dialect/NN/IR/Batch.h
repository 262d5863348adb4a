// Attributes of arguments and results in addition to name and role: their batch
// dimension, whether a parameter is frozen, and which argument holds the number
// of updates that a parameter has had.

#ifndef CLEAVE_DIALECT_NN_IR_BATCH_H
#define CLEAVE_DIALECT_NN_IR_BATCH_H

#include "cleave/Dialect/NN/IR/Ports.h"

#include <optional>

namespace cleave::nn {

/// Attribute of an argument or result: the number of its batch dimension, whose
/// indices are the samples; -1 if it has none. The pass `nn-mark-batch` sets
/// it.
inline constexpr llvm::StringLiteral kBatchDimAttr = "nn.batch_dim";
/// Unit attribute of a result that depends on all samples that one call of the
/// function processes. The samples may then neither be divided into calls
/// differently nor be padded.
inline constexpr llvm::StringLiteral kWholeCallAttr = "nn.whole_call";

/// Attribute of an input of a function that processes one microbatch. The input
/// holds the samples of the whole step, and not only those of the microbatch.
/// It exists if the divisor of a loss depends on all samples of the step. The
/// attribute's value is the name of the corresponding input for the microbatch.
/// See `nn-add-loss`.
inline constexpr llvm::StringLiteral kWholeStepAttr = "nn.whole_step";
/// The name of a version of `@forward` for the samples of a whole step, as
/// opposed to those of a microbatch. `nn-add-loss` reads and removes this
/// version.
inline constexpr llvm::StringLiteral kForwardStepFunc = "forward_step";
/// The name of a version of `@forward` that processes more than one sample, but
/// a different number of samples than `@forward_step`. `nn-add-loss` compares
/// the two versions to find the constants that depend on the number of samples.
/// The version exists only if a microbatch has one sample; otherwise,
/// `@forward` itself is compared with `@forward_step`.
inline constexpr llvm::StringLiteral kForwardOtherFunc = "forward_other";

/// Unit attribute of a constant of the program that is a parameter of the model
/// but is not trained.
inline constexpr llvm::StringLiteral kFrozenAttr = "nn.frozen";

/// Attribute of a moment of AdamW: the name of the argument of @update that
/// counts the updates of the moment's parameter.
inline constexpr llvm::StringLiteral kCountAttr = "nn.count";

/// Returns the batch dimension of an argument or result with the attributes
/// `attrs` and `rank` dimensions. Without the attribute `nn.batch_dim`, tokens,
/// labels and sample_ids have batch dimension 0, and other roles have none.
inline std::optional<int64_t> batchDimOf(mlir::DictionaryAttr attrs,
                                         int64_t rank) {
  std::optional<int64_t> dim;
  if (!attrs)
    return dim;
  if (auto said = attrs.getAs<mlir::IntegerAttr>(kBatchDimAttr)) {
    dim = said.getInt();
  } else if (isOneOf(roleOf(attrs),
                     {Role::Tokens, Role::Labels, Role::SampleIds})) {
    dim = 0;
  }
  return dim && *dim >= 0 && *dim < rank ? dim : std::nullopt;
}

/// Returns whether `value` depends on a parameter of the function.
bool dependsOnParameter(mlir::Value value);

} // namespace cleave::nn

#endif
