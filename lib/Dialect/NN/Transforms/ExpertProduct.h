// Sums over experts, taken apart into a test and factors.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H

#include "ExpertFamily.h"

namespace cleave::nn {

/// A family whose dimensions have names: those of the sum, from 0, and those
/// that are summed on the way.
struct Factor {
  Family family;
  Dims frame;
};

/// sum over slots of test * factors. `slot` names the dimension of a token's
/// slots in the frame, -1 where tokens have one.
struct ExpertProduct {
  int64_t experts = 0;
  std::optional<ExpertTest> test;
  llvm::SmallVector<Factor> factors;
  int64_t slot = -1;
};

/// The term of each expert, as a product with a test; nothing where it is
/// none.
std::optional<ExpertProduct> productOf(const Family &terms);

/// The same of what an einsum contracts along its one letter for the experts.
std::optional<ExpertProduct> productOfContracted(EinsumOp op);

/// The test of one term, and the expert that it tests for.
std::optional<std::pair<ExpertTest, int64_t>> expertOf(mlir::Value term);

/// The number of experts among which the ids choose: they are those of nn.top_k
/// or nn.argmax. Nothing where that is not known.
std::optional<int64_t> choicesOf(mlir::Value ids);

} // namespace cleave::nn

#endif
