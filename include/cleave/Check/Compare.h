// Compares tensors by their relative error.
//
//     error = max|a - b| / max(max|b|, floor)
//
// where b is the tensor of the reference, and `floor` is a fraction of the
// largest magnitude of the reference's tensors of the same kind (such as
// gradients). With this floor, a tensor that is zero in exact arithmetic does
// not fail because of rounding errors. If large terms cancel, the rounding
// errors of a tensor (its noise) can be larger than any gradient. So
// `Named::noise` states by how much rounding alone changes the tensor. A
// difference of this size is allowed, but only up to a cap, because a larger
// allowance could hide an error.

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

/// The limits of a check on the relative error of a tensor, and the factors
/// from which they are computed.
struct Tolerances {
  /// The limits in f64, after one step and after several steps.
  double exact = 1e-9;
  double steps = 1e-8;
  /// In the precision of training, the limit is `roundingFactor` times the
  /// error of the unsharded program, plus `roundingSlack`. For scalars, the
  /// limit is larger by `scalarEpsilons` machine epsilons.
  double roundingFactor = 4;
  double roundingSlack = 1e-6;
  double scalarEpsilons = 16;
  /// The floor of the error's denominator, as a fraction of the largest
  /// magnitude of the tensors of the same kind: in f64, and in the precision of
  /// training.
  double exactFloor = 1e-6;
  double roundingFloor = 1e-3;
  /// The allowed difference due to noise is `noiseFactor` times Named::noise.
  double noiseFactor = 64;
  /// The largest difference due to noise that is allowed, as a fraction of the
  /// largest gradient. A larger one could hide an error.
  double noiseCap = 1e-8;
};

/// The value of an argument or result of a program after a run, with the name
/// of the argument or result.
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
  /// same tensor if the parameters are perturbed in their last digits. 0 means
  /// unknown.
  double noise = 0;
};
using NamedTensors = std::vector<Named>;

/// The difference between two tensors of equal shape.
struct Difference {
  /// max|a - b|. If an element is NaN in both tensors, its difference is 0; if
  /// it is NaN in only one of them, the difference is infinite.
  double largest = 0;
  /// The row-major index of the element with the largest difference; -1 if the
  /// tensors are equal.
  int64_t worst = -1;
  /// max|b|, without NaN and infinity.
  double magnitude = 0;
};
Difference difference(const Tensor &a, const Tensor &b);

/// Returns, for each kind of tensor, the largest finite magnitude of an
/// element. The array is indexed by TensorKind.
std::array<double, kNumKinds> largestMagnitudes(const NamedTensors &tensors);

/// Returns the index in each dimension, such as [2, 0, 5], of the element of a
/// tensor of `shape` with a given row-major index.
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
  /// True if no element of the reference tensor is larger than the floor, which
  /// is then the denominator of the error.
  bool belowFloor = false;
  /// True if the noise of the tensor is above the cap, so that the error limit
  /// does not include the noise.
  bool aboveNoiseCap = false;
  /// The number of training steps after which the tensors were compared.
  int64_t steps = 1;

  bool pass() const { return relError <= limit; }
};

/// Compares results in f64 after `steps` steps.
std::vector<TensorReport> compareExact(const NamedTensors &sharded,
                                       const NamedTensors &reference,
                                       int64_t steps, const Tolerances &);

/// Compares the results of the sharded and of the unsharded program in the
/// precision in which the program is trained. Both are compared with the same
/// f64 reference: the error of the sharded program must not be much larger than
/// that of the unsharded one. `epsilon` is the machine epsilon of the precision
/// of training.
std::vector<TensorReport> compareRounding(const NamedTensors &sharded,
                                          const NamedTensors &unsharded,
                                          const NamedTensors &reference,
                                          double epsilon, const Tolerances &);

/// The largest difference between two replicas of a tensor, and the name of
/// this tensor. The difference is NaN or infinite if an element is NaN in only
/// one of them.
struct ReplicaReport {
  double largest = 0;
  std::string name;
};
ReplicaReport worstReplica(const NamedTensors &tensors);

} // namespace cleave::check

#endif
