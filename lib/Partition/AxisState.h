// The lattice of dist-verify-variance, for one axis of the mesh.
#ifndef CLEAVE_LIB_PARTITION_AXISSTATE_H
#define CLEAVE_LIB_PARTITION_AXISSTATE_H

#include "cleave/Dialect/Dist/IR/Dist.h"

#include "llvm/ADT/Twine.h"
#include "llvm/ADT/bit.h"

namespace cleave::partition {

/// What the ranks along one axis hold.
struct AxisState {
  enum Kind : uint8_t {
    Constant,  // the same number everywhere in the tensor, or a reduction of one:
               // fits any other state
    Invariant, // the same value; the same along `dims` too
    Split,     // tiles of a dimension
    Partial,   // addends or candidates, combined by `reduce`
    Varying,   // different values, not known how
  };
  Kind kind = Constant;
  dist::ReduceKind reduce = dist::ReduceKind::Sum;
  /// A set of dimensions. Split: which may be the one that is split; a reshape of
  /// tiles of one element cannot tell [1, 2] split on the first from the second.
  /// Invariant: along which the value repeats, so that it is a tile as well.
  uint64_t dims = 0;
  /// One of several things that the value may be, of Split or Partial; where it
  /// turns out to be another one, it is as good as Varying.
  bool maybe = false;
  /// Split, Varying: it may be addends or candidates, as `reduce` says.
  bool orPartial = false;

  static AxisState split(int64_t dim) {
    return {Split, dist::ReduceKind::Sum, uint64_t(1) << std::min<int64_t>(dim, 63), false, false};
  }
  static AxisState partial(dist::ReduceKind kind) { return {Partial, kind, 0, false, false}; }
  bool isSplitOn(int64_t dim) const {
    return kind == Split && dims >> std::min<int64_t>(dim, 63) & 1;
  }
  std::string str() const {
    switch (kind) {
    case Constant:
      return "constant";
    case Invariant:
      return "invariant";
    case Split:
      return ("split on dimension " + llvm::Twine(llvm::countr_zero(dims))).str();
    case Partial:
      return ("partial (" + dist::stringifyReduceKind(reduce) + ")").str();
    case Varying:
      return "varying";
    }
    llvm_unreachable("unknown state");
  }
};

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_AXISSTATE_H
