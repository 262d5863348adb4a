// Splits sums over experts into a test and factors.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTPRODUCT_H

#include "ExpertFamily.h"

namespace cleave::nn {

/// A family of values, one per expert, with named dimensions: the dimensions of
/// the sum, from 0, and those that the sum reduces.
struct Factor {
  Family family;
  Dims frame;
};

/// The sum over slots of test * factors. `slot` names the dimension of a
/// token's slots in the frame; -1 if a token has one slot.
struct ExpertProduct {
  int64_t experts = 0;
  std::optional<ExpertTest> test;
  llvm::SmallVector<Factor> factors;
  int64_t slot = -1;
};

/// The term of each expert as a product with a test; nullopt if it is no such
/// product.
std::optional<ExpertProduct> productOf(const Family &terms);

/// Like the above, for an einsum that contracts the experts along its only
/// letter for them.
std::optional<ExpertProduct> productOfContracted(EinsumOp op);

/// The test of one term, and the expert that it tests for.
std::optional<std::pair<ExpertTest, int64_t>> expertOf(mlir::Value term);

/// The number of experts that the ids choose from, if the ids come from
/// nn.top_k or nn.argmax; else nullopt.
std::optional<int64_t> choicesOf(mlir::Value ids);

} // namespace cleave::nn

#endif
