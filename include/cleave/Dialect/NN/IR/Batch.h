// What is said of arguments and results beside name and role: which dimension
// counts the samples of a call, which parameters are frozen, what counts a
// parameter's updates.

#ifndef CLEAVE_DIALECT_NN_IR_BATCH_H
#define CLEAVE_DIALECT_NN_IR_BATCH_H

#include "cleave/Dialect/NN/IR/Ports.h"

#include <optional>

namespace cleave::nn {

/// The dimension; -1 says that there is none. See `nn-mark-batch`.
inline constexpr llvm::StringLiteral kBatchDimAttr = "nn.batch_dim";
/// Of a result that is a function of all samples of a call together, so that
/// neither calls nor padding may cut the samples differently.
inline constexpr llvm::StringLiteral kWholeCallAttr = "nn.whole_call";

/// Of an input of a microbatch that holds the samples of the whole step: the
/// name of the input that holds those of the microbatch. What a loss divides by
/// is counted from it. See `nn-add-loss`.
inline constexpr llvm::StringLiteral kWholeStepAttr = "nn.whole_step";
/// `@forward` of all samples of a step, of which `@forward` sees a microbatch,
/// until `nn-add-loss` has read it.
inline constexpr llvm::StringLiteral kForwardStepFunc = "forward_step";
/// The same of another number of samples, more than one; where a microbatch has
/// more than one, `@forward` is that.
inline constexpr llvm::StringLiteral kForwardOtherFunc = "forward_other";

/// Of a constant that is a parameter of the model, but is not trained.
inline constexpr llvm::StringLiteral kFrozenAttr = "nn.frozen";

/// Of a moment of AdamW: the name of the argument of @update that counts the
/// updates of its parameter.
inline constexpr llvm::StringLiteral kCountAttr = "nn.count";

/// The batch dimension of an argument or result with these attributes. Where
/// nothing is said, tokens, labels and sample_ids have it first, and no other
/// role has one.
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

/// Whether a parameter of the function is among what `value` is computed from.
bool dependsOnParameter(mlir::Value value);

} // namespace cleave::nn

#endif
