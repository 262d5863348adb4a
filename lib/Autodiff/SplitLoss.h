// Splits a loss that the model computes into a sum over microbatches.

#ifndef CLEAVE_LIB_AUTODIFF_SPLITLOSS_H
#define CLEAVE_LIB_AUTODIFF_SPLITLOSS_H

#include "cleave/Dialect/NN/Transforms/BatchFlow.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

#include <optional>
#include <string>

namespace cleave::autodiff {

/// Returns whether two operations, from two imports of one ONNX graph with
/// different batch sizes, can be the same operation: they have the same
/// operation name, number of operands and ONNX node.
bool areTwins(mlir::Operation *op, mlir::Operation *other);

/// Splits a loss that the model computes. Two functions compute the same for
/// different numbers of samples: `step` for a whole step, `func` for one
/// microbatch. The search begins at the loss and proceeds backwards through
/// both, to the samples. It finds in `step` how values depend on samples, and
/// builds the loss in `func`. A value is
///
///   Whole  the same in every microbatch: computed from parameters, or from
///          inputs of the whole step, which become arguments of `func` marked
///          `nn.whole_step`. It may depend on parameters or on samples, but
///          not on both;
///   Tile   the part of the value that belongs to the samples of one
///          microbatch, each sample for itself;
///   Sum    a partial sum: the values of all microbatches add up to the value.
///
/// An operation that adds over samples turns tiles into sums; operations that
/// are linear in sums return sums. Any other use of a sum is refused. The
/// operations' sharding rules say which of these an operation does, as for sums
/// over ranks.
class LossSplitter {
public:
  enum class Kind { Whole, Tile, Sum };
  struct Part {
    Kind kind;
    mlir::Value value; // in `func`
  };

  /// `other` is the same function of the model as `step`, imported with a
  /// different number of samples (at least two). A constant that differs
  /// between `step` and `other` depends on the number of samples. If `step` is
  /// null, `func` is used in its place, and no inputs of the whole step are
  /// available.
  LossSplitter(mlir::func::FuncOp func, mlir::func::FuncOp step,
               mlir::func::FuncOp other, int64_t microbatches);

  /// Determines the kind of a value (Whole, Tile or Sum), and returns the kind
  /// with the value of one microbatch, for which new operations may be added to
  /// `func`. The value is given twice: `whole` is its definition in `step`, and
  /// `part` the corresponding one in `func`. Fails if the value is of no kind.
  mlir::FailureOr<Part> split(mlir::Value whole, mlir::Value part);

  /// Returns whether the values `part` of all microbatches add up to the value
  /// `whole` of the whole step. Only for counts that depend on no parameter,
  /// such as the number of labels.
  bool addsUp(mlir::Value whole, mlir::Value part);

  bool hasStep() const { return step != func; }

  /// The reason and the location of the last failure of `split`.
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
  std::optional<nn::BatchFlow> flow; // batch dimensions of values in `step`
  // Both as found by findVarying: values of `step` that depend on the number of
  // samples, and operations that differ between `step` and `other` in more than
  // the size of the batch dimension.
  llvm::DenseSet<mlir::Value> varying;
  llvm::DenseSet<mlir::Operation *> unlike;
  bool oneSample = false;  // a microbatch has one sample, a step has several
  bool isAlike = true;     // `step` and `other` have the same operations
  bool countsOnly = false; // set during `addsUp`
  mlir::OpBuilder builder;
  llvm::DenseMap<mlir::Value, Part> parts, countParts;
  mlir::IRMapping wholes;
  std::string why;
  mlir::Location where;
};

} // namespace cleave::autodiff

#endif
