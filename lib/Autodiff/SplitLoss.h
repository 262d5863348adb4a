// A loss that the model computes, as a sum over microbatches.

#ifndef CLEAVE_LIB_AUTODIFF_SPLITLOSS_H
#define CLEAVE_LIB_AUTODIFF_SPLITLOSS_H

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

#include <optional>
#include <string>

namespace cleave::autodiff {

/// Whether two operations of two imports of one graph can be the same one:
/// equal ones, of one node.
bool areTwins(mlir::Operation *op, mlir::Operation *other);

/// Follows a loss from its end to the samples in two functions that compute the
/// same of different numbers of samples: `step`, of a whole step, says how each
/// value depends on samples; `func`, of one microbatch, is where the loss is
/// built. A value is
///
///   Whole  the same in every microbatch: computed from parameters, or from
///          inputs of the whole step, which then are arguments of `func`,
///          marked `nn.whole_step`. It may depend on a parameter or on samples,
///          not on both;
///   Tile   of the samples of the microbatch, one by one;
///   Sum    a partial sum: what all microbatches have adds up to the value.
///
/// Tiles become sums where an operation adds over samples; sums pass through
/// what is linear in them. Nothing else is known to add up, and is refused.
/// The operations' sharding rules say which is which, as they do for ranks.
class LossSplitter {
public:
  enum class Kind { Whole, Tile, Sum };
  struct Part {
    Kind kind;
    mlir::Value value; // in `func`
  };

  /// `other` is `step` for another number of samples, more than one: constants
  /// that differ are numbers of samples. Without `step`, `func` says all, and
  /// no input of a whole step is known.
  LossSplitter(mlir::func::FuncOp func, mlir::func::FuncOp step,
               mlir::func::FuncOp other, int64_t microbatches);

  /// `whole` of `step` and `part` of `func` are the same value.
  mlir::FailureOr<Part> split(mlir::Value whole, mlir::Value part);

  /// A count, which depends on no parameter: whether it adds up over
  /// microbatches.
  bool addsUp(mlir::Value whole, mlir::Value part);

  bool hasStep() const { return step != func; }

  /// Why the last call failed, and where.
  const std::string &reason() const { return why; }
  mlir::Location place() const { return where; }

private:
  mlir::FailureOr<Part> visit(mlir::Value whole, mlir::Value part);
  mlir::FailureOr<Part> visitOperation(mlir::Operation *op,
                                       mlir::OpResult whole, mlir::Value part);
  mlir::FailureOr<Part> ofSums(mlir::Operation *op, mlir::OpResult whole,
                               llvm::ArrayRef<Part> operands);
  mlir::FailureOr<Part> ofTiles(mlir::Operation *op, mlir::OpResult whole,
                                mlir::Operation *twin, mlir::Value part,
                                llvm::ArrayRef<Part> operands);
  mlir::FailureOr<Part> ofWhole(mlir::Operation *op, mlir::OpResult whole,
                                mlir::Operation *twin, mlir::Value part,
                                llvm::ArrayRef<Part> operands);
  mlir::FailureOr<mlir::Value> copyWhole(mlir::Value whole);
  mlir::FailureOr<mlir::Value> copyArgument(mlir::BlockArgument argument);

  mlir::LogicalResult findVarying(mlir::func::FuncOp other);
  bool isLike(mlir::Operation *op, mlir::Operation *twin,
              int64_t samples) const;
  bool isTileOf(mlir::Value part, mlir::Value whole) const;
  mlir::FailureOr<mlir::Value> repeat(mlir::Value whole, mlir::Value twin,
                                      unsigned dim);
  mlir::Value cloneWith(mlir::Operation *op, unsigned result,
                        llvm::ArrayRef<Part> operands);
  mlir::FailureOr<mlir::Value> withType(mlir::Value value, mlir::Type type,
                                        mlir::Value whole);
  bool isBatched(mlir::Value value) const;
  bool hasSamples(mlir::Value value) const;
  bool isTile(mlir::Value value) const;
  bool isKnownBefore(mlir::Value value) const;
  bool isSumOverSamplesAlone(mlir::Operation *op) const;
  mlir::LogicalResult checkTwins(mlir::Value whole, mlir::Value part);
  llvm::LogicalResult fail(mlir::Value value, const llvm::Twine &reason);
  llvm::LogicalResult failTwins(mlir::Value value);
  llvm::LogicalResult failLayout(mlir::Value value);

  mlir::func::FuncOp func, step;
  int64_t microbatches;
  std::optional<nn::BatchFlow> flow;        // in `step`
  llvm::DenseSet<mlir::Value> varying;      // with the number of samples
  llvm::DenseSet<mlir::Operation *> unlike; // results not tile by tile
  bool oneSample = false;                   // in a microbatch of several
  bool isAlike = true;                      // `step` for all numbers of samples
  bool countsOnly = false;                  // while `addsUp` looks
  mlir::OpBuilder builder;
  llvm::DenseMap<mlir::Value, Part> parts, countParts;
  mlir::IRMapping wholes;
  std::string why;
  mlir::Location where;
};

} // namespace cleave::autodiff

#endif
