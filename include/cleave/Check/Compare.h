// Compares tensors by their relative error.
//
//     error = max|a - b| / max(max|b|, floor)
//
// where b is the tensor of the reference, and `floor` is a fraction of the
// largest magnitude of the reference's tensors of the same kind (such as
// gradients). With this floor, a tensor that is zero in exact arithmetic does
// not fail because of rounding errors. If large terms cancel, the rounding
// errors of a tensor (its noise) can be larger than any gradient. So `noise`
// states by how much rounding alone changes the tensor. A difference of this
// size is allowed, but only up to a cap, because a larger allowance could hide
// an error.

#ifndef CLEAVE_CHECK_COMPARE_H
#define CLEAVE_CHECK_COMPARE_H

#include "cleave/Interfaces/Tensor.h"

#include "llvm/ADT/StringRef.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace cleave::check {

enum class TensorKind {
  Loss,
  Output,
  Gradient,
  Parameter,
  State,
  Buffer,
  Norm
};
inline constexpr int kNumKinds = 7;
llvm::StringRef spell(TensorKind kind);

enum class Part { Exact, Rounding };
llvm::StringRef spell(Part part);

/// The tolerances of a check.
struct Tolerances {
  double exact = 1e-9;         // f64, one step
  double steps = 1e-8;         // f64, several steps
  double roundingFactor = 4;   // times the error of the unsharded program
  double roundingSlack = 1e-6; // added to it
  double scalarEpsilons = 16;  // times eps of the type, added for scalars
  double exactFloor = 1e-6;    // of the largest magnitude of the kind
  double roundingFloor = 1e-3;
  double noiseFactor = 64; // times the noise of a tensor that cancels
  /// The most noise that is allowed, as a fraction of the largest gradient.
  /// More noise could hide an error.
  double noiseCap = 1e-8;
};

/// A tensor of one run of a program, with the name of the argument or result
/// that it is.
struct Named {
  std::string name;
  TensorKind kind = TensorKind::Output;
  Tensor value;
  /// The largest difference between two ranks' copies of one element.
  double replicaDifference = 0;
  /// Returns the first rank that holds the element with the given row-major
  /// index. An empty function means rank 0.
  std::function<int64_t(int64_t)> rankOf;
  /// The noise of a reference tensor b in f64: max|b - b'|, where b' is the
  /// result for inputs that are perturbed in their last digits. 0 means
  /// unknown.
  double noise = 0;
};
using NamedTensors = std::vector<Named>;

/// The difference between two tensors of equal shape.
struct Difference {
  double largest = 0;   // max|a - b|; NaN counts as infinite unless in both
  int64_t worst = -1;   // row-major index of it; -1 where there is none
  double magnitude = 0; // max|b|
};
Difference difference(const Tensor &a, const Tensor &b);

/// The largest finite magnitude of each kind.
std::array<double, kNumKinds> largestMagnitudes(const NamedTensors &tensors);

/// Splits a row-major index into the index in each dimension, such as [2, 0,
/// 5].
std::vector<int64_t> unflatten(int64_t index, llvm::ArrayRef<int64_t> shape);

/// The verdict on one tensor, an entry of `check --json`.
struct TensorReport {
  std::string name;
  TensorKind kind = TensorKind::Output;
  Part part = Part::Exact;
  double relError = 0;
  double limit = 0;
  std::vector<int64_t> worstIndex;
  int64_t rank = 0;
  /// True if no element of the tensor is larger than the floor.
  bool belowFloor = false;
  /// True if the noise of the tensor is above the cap, so that the error limit
  /// does not include the noise.
  bool aboveNoiseCap = false;
  /// The number of steps before the comparison.
  int64_t steps = 1;

  bool pass() const { return relError <= limit; }
};

/// Compares results in f64 after `steps` steps.
std::vector<TensorReport> compareExact(const NamedTensors &sharded,
                                       const NamedTensors &reference,
                                       int64_t steps, const Tolerances &);

/// Compares the results of the sharded and of the unsharded program in the real
/// precision; both are compared with the same f64 reference. `epsilon` is the
/// machine epsilon of the real type.
std::vector<TensorReport> compareRounding(const NamedTensors &sharded,
                                          const NamedTensors &unsharded,
                                          const NamedTensors &reference,
                                          double epsilon, const Tolerances &);

/// The largest difference between two replicas of a tensor, and the name of
/// this tensor. It is NaN if only one copy is NaN.
struct ReplicaReport {
  double largest = 0;
  std::string name;
};
ReplicaReport worstReplica(const NamedTensors &tensors);

} // namespace cleave::check

#endif
