// Comparing tensors: the relative error of the contract, and its verdict.
//
//     error = max|a - b| / max(max|b|, floor)
//
// where floor is a share of the largest magnitude among all tensors of b's
// kind, so that a tensor that is zero in theory is not judged by its noise.
// What cancels may have noise of larger terms than any gradient is: `noise`
// says how much rounding alone moved a tensor of b. That is allowed as far as
// it is below a cap: an error could pass for more.

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

/// What the contract allows.
struct Tolerances {
  double exact = 1e-9;         // f64, one step
  double steps = 1e-8;         // f64, several steps
  double roundingFactor = 4;   // times the error of the unsharded program
  double roundingSlack = 1e-6; // added to it
  double scalarEpsilons = 16;  // times eps of the type, added for scalars
  double exactFloor = 1e-6;    // of the largest magnitude of the kind
  double roundingFloor = 1e-3;
  double noiseFactor = 64; // times the noise of a tensor that cancels
  /// The largest that may be, of the largest gradient: under a larger one an
  /// error could hide.
  double noiseCap = 1e-8;
};

/// A tensor of one run by its name at the boundary.
struct Named {
  std::string name;
  TensorKind kind = TensorKind::Output;
  Tensor value;
  /// The largest difference between two ranks' copies of one element.
  double replicaDifference = 0;
  /// The first rank that holds the element, by row-major index; empty: rank 0.
  std::function<int64_t(int64_t)> rankOf;
  /// Of a reference in f64: max|b - b'|, where b' is b from values that differ
  /// in their last digits; 0: not known.
  double noise = 0;
};
using NamedTensors = std::vector<Named>;

/// The difference between two tensors of one shape.
struct Difference {
  double largest = 0;   // max|a - b|; NaN counts as infinite unless in both
  int64_t worst = -1;   // row-major index of it; -1 where there is none
  double magnitude = 0; // max|b|
};
Difference difference(const Tensor &a, const Tensor &b);

/// The largest finite magnitude of each kind.
std::array<double, kNumKinds> largestMagnitudes(const NamedTensors &tensors);

/// "[2, 0, 5]" of a row-major index.
std::vector<int64_t> unflatten(int64_t index, llvm::ArrayRef<int64_t> shape);

/// The verdict on one tensor; the names are those of `check --json`.
struct TensorReport {
  std::string name;
  TensorKind kind = TensorKind::Output;
  Part part = Part::Exact;
  double relError = 0;
  double limit = 0;
  std::vector<int64_t> worstIndex;
  int64_t rank = 0;
  /// Nothing in the tensor is larger than the floor.
  bool belowFloor = false;
  /// What rounding may move it by is above the cap, so none of it is allowed.
  bool aboveNoiseCap = false;
  /// Steps taken before the comparison.
  int64_t steps = 1;

  bool pass() const { return relError <= limit; }
};

/// f64 against f64, after `steps` steps.
std::vector<TensorReport> compareExact(const NamedTensors &sharded,
                                       const NamedTensors &reference,
                                       int64_t steps, const Tolerances &);

/// The real precision of the sharded and of the unsharded program, each against
/// the same f64 reference. `epsilon` is that of the real type.
std::vector<TensorReport> compareRounding(const NamedTensors &sharded,
                                          const NamedTensors &unsharded,
                                          const NamedTensors &reference,
                                          double epsilon, const Tolerances &);

/// The largest difference between replicas, and where; NaN where one copy is.
struct ReplicaReport {
  double largest = 0;
  std::string name;
};
ReplicaReport worstReplica(const NamedTensors &tensors);

} // namespace cleave::check

#endif
