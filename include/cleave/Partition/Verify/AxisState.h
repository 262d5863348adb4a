// The lattice of dist-verify-variance, for one mesh axis.
#ifndef CLEAVE_PARTITION_VERIFY_AXISSTATE_H
#define CLEAVE_PARTITION_VERIFY_AXISSTATE_H

#include "cleave/Dialect/Dist/IR/Layout.h"

#include "llvm/ADT/Twine.h"
#include "llvm/ADT/bit.h"

namespace cleave::partition {

/// What the ranks along one mesh axis hold of a value.
struct AxisState {
  enum Kind : uint8_t {
    Zero,      // a zero tensor: a tile, a partial result or the whole of it
    Invariant, // the same value on all ranks; it repeats along `dims`
    Split,     // tiles of a dimension
    Partial,   // partial results, combined by `reduce`
    Varying,   // different values of unknown relation
  };
  Kind kind = Zero;
  dist::ReduceKind reduce = dist::ReduceKind::Sum;
  /// A set of dimensions. Split: the dimensions that may be the split one;
  /// after a reshape of one-element tiles, [1, 2] split on the first dimension
  /// cannot be told from [1, 2] split on the second. Invariant: the dimensions
  /// along which the value repeats, so that it is a tile as well.
  uint64_t dims = 0;
  /// True if the value is Split or Partial only as one of several
  /// possibilities. An operation that needs one of the other possibilities
  /// treats the value as Varying.
  bool maybe = false;
  /// Split, Varying, Invariant: the value may also be partial results, combined
  /// by `reduce`.
  bool orPartial = false;
  /// Split: the axes known to split the same dimension further (minor to this
  /// axis).
  dist::AxisSet majorTo = 0;

  static AxisState split(int64_t dim) {
    AxisState state;
    state.kind = Split;
    state.dims = uint64_t(1) << std::min<int64_t>(dim, 63);
    return state;
  }
  static AxisState partial(dist::ReduceKind kind) {
    AxisState state;
    state.kind = Partial;
    state.reduce = kind;
    return state;
  }
  static AxisState of(Kind kind, uint64_t dims = 0) {
    AxisState state;
    state.kind = kind;
    state.dims = dims;
    return state;
  }
  bool isSplitOn(int64_t dim) const {
    return kind == Split && dims >> std::min<int64_t>(dim, 63) & 1;
  }
  /// Whether the ranks certainly hold tiles of one known dimension of the
  /// value.
  bool isSurelySplit() const {
    return kind == Split && llvm::popcount(dims) == 1 && !maybe;
  }
  bool isSurelySplitOn(int64_t dim) const {
    return isSplitOn(dim) && isSurelySplit();
  }
  /// Whether the values of the ranks may be read as partial results of the
  /// reduction `kind`.
  bool mayBePartial(dist::ReduceKind kind) const {
    if (this->kind == Zero)
      return kind == dist::ReduceKind::Sum;
    return (this->kind == Partial || orPartial) && reduce == kind;
  }
  std::string str() const {
    switch (kind) {
    case Zero:
      return "zero";
    case Invariant:
      return "invariant";
    case Split:
      return ("split on dimension " + llvm::Twine(llvm::countr_zero(dims)))
          .str();
    case Partial:
      return ("partial (" + dist::stringifyReduceKind(reduce) + ")").str();
    case Varying:
      return "varying";
    }
    llvm_unreachable("unknown state");
  }
};

/// One state for each mesh axis.
using State = llvm::SmallVector<AxisState, 4>;

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_VERIFY_AXISSTATE_H
