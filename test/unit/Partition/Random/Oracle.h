// The results of a program on one device, and how far the results of another
// run may differ from them.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_ORACLE_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_ORACLE_H

#include "Generator.h"

#include "cleave/Interpreter/Interpreter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::random {

/// How far the ranks' results may differ from those of one device: for each
/// result, the largest magnitude of the values from which it is computed, and
/// whether it must be equal bit by bit.
struct Tolerance {
  double magnitude = 0;
  bool exact = true;
};

/// Returns a tensor of small integers. If they are used as indices, some of
/// them are out of bounds.
Tensor randomTensor(Random &random, mlir::RankedTensorType type);

/// The results of the program on one device, and their tolerances.
struct Oracle {
  std::vector<Tensor> results;
  llvm::SmallVector<Tolerance> tolerances;

  static mlir::FailureOr<Oracle> of(mlir::func::FuncOp func,
                                    llvm::ArrayRef<Tensor> arguments);
};

/// Returns how the tensors differ, or an empty string if they agree.
std::string difference(const Tensor &want, const Tensor &got,
                       Tolerance tolerance);

} // namespace cleave::random

#endif
