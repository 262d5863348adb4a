// Relative errors as the contract defines them.

#include "cleave/Check/Compare.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <cmath>
#include <limits>

using namespace cleave;
using namespace cleave::check;

llvm::StringRef check::spell(TensorKind kind) {
  static constexpr llvm::StringLiteral names[] = {
      "loss", "output", "gradient", "parameter", "state", "buffer", "norm"};
  return names[static_cast<int>(kind)];
}

llvm::StringRef check::spell(Part part) {
  return part == Part::Exact ? "exact" : "rounding";
}

Difference check::difference(const Tensor &a, const Tensor &b) {
  assert(a.shape() == b.shape() && a.isFloat() == b.isFloat());
  Difference result;
  auto visit = [&](int64_t index, double distance, double magnitude) {
    if (magnitude > result.magnitude) // false for NaN
      result.magnitude = magnitude;
    if (distance > result.largest || (result.worst < 0 && distance > 0)) {
      result.largest = distance;
      result.worst = index;
    }
  };
  for (int64_t i = 0; i < a.size(); ++i) {
    if (!a.isFloat()) {
      visit(i, std::abs(double(a.ints[i]) - double(b.ints[i])),
            std::abs(double(b.ints[i])));
      continue;
    }
    double x = a.floats[i], y = b.floats[i];
    bool same = x == y || (std::isnan(x) && std::isnan(y));
    double distance = same ? 0 : std::abs(x - y);
    // The distance is NaN if only one of the values is NaN, or if they are
    // infinities with opposite signs. Both count as an infinite error.
    if (std::isnan(distance))
      distance = std::numeric_limits<double>::infinity();
    visit(i, distance, std::isfinite(y) ? std::abs(y) : 0);
  }
  return result;
}

std::array<double, kNumKinds>
check::largestMagnitudes(const NamedTensors &tensors) {
  std::array<double, kNumKinds> largest{};
  for (const Named &tensor : tensors) {
    double &kind = largest[static_cast<int>(tensor.kind)];
    kind = std::max(kind, difference(tensor.value, tensor.value).magnitude);
  }
  return largest;
}

std::vector<int64_t> check::unflatten(int64_t index,
                                      llvm::ArrayRef<int64_t> shape) {
  std::vector<int64_t> indices(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    indices[dim] = index % shape[dim];
    index /= shape[dim];
  }
  return indices;
}

namespace {

using Index = llvm::StringMap<const Named *>;

std::string keyOf(const Named &tensor) {
  return (spell(tensor.kind) + ":" + tensor.name).str();
}

Index indexOf(const NamedTensors &tensors) {
  Index index;
  for (const Named &tensor : tensors)
    index[keyOf(tensor)] = &tensor;
  return index;
}

/// Returns the relative error distance / max(magnitude, floor), and 0 if
/// `distance` is 0.
double relative(double distance, double magnitude, double floor) {
  return distance == 0 ? 0 : distance / std::max(magnitude, floor);
}

/// Returns a report without its limit.
TensorReport report(const Named &tensor, const Named &reference, Part part,
                    double floor) {
  TensorReport result;
  result.name = reference.name;
  result.kind = reference.kind;
  result.part = part;
  bool comparable = tensor.value.shape() == reference.value.shape() &&
                    tensor.value.isFloat() == reference.value.isFloat();
  if (!comparable) {
    result.relError = std::numeric_limits<double>::infinity();
    return result;
  }
  Difference found = difference(tensor.value, reference.value);
  result.relError = relative(found.largest, found.magnitude, floor);
  result.belowFloor = found.magnitude <= floor;
  if (found.worst >= 0) {
    result.worstIndex = unflatten(found.worst, reference.value.shape());
    result.rank = tensor.rankOf ? tensor.rankOf(found.worst) : 0;
  }
  return result;
}

/// Returns how much rounding may change a gradient that is computed in f64:
/// `noiseFactor` times its noise, or 0 if this is above Tolerances::noiseCap.
double allowedNoise(const Named &tensor, double largestGradient,
                    const Tolerances &tolerances, bool &aboveCap) {
  double noise = tolerances.noiseFactor * tensor.noise;
  aboveCap = noise > tolerances.noiseCap * largestGradient;
  return aboveCap ? 0 : noise;
}

/// Returns the report for a tensor that one of the compared programs does not
/// have: the error is infinite.
TensorReport missing(const Named &reference, Part part) {
  TensorReport result;
  result.name = reference.name;
  result.kind = reference.kind;
  result.part = part;
  result.relError = std::numeric_limits<double>::infinity();
  return result;
}

} // namespace

std::vector<TensorReport> check::compareExact(const NamedTensors &sharded,
                                              const NamedTensors &reference,
                                              int64_t steps,
                                              const Tolerances &tolerances) {
  Index index = indexOf(sharded);
  auto largest = largestMagnitudes(reference);
  std::vector<TensorReport> reports;
  for (const Named &tensor : reference) {
    const Named *other = index.lookup(keyOf(tensor));
    double ofKind = largest[static_cast<int>(tensor.kind)];
    bool aboveCap = false;
    double noise = allowedNoise(tensor, ofKind, tolerances, aboveCap);
    double floor =
        std::max(tolerances.exactFloor * ofKind, noise / tolerances.exact);
    reports.push_back(other ? report(*other, tensor, Part::Exact, floor)
                            : missing(tensor, Part::Exact));
    reports.back().limit = steps > 1 ? tolerances.steps : tolerances.exact;
    reports.back().steps = steps;
    reports.back().aboveNoiseCap = aboveCap;
  }
  return reports;
}

std::vector<TensorReport> check::compareRounding(const NamedTensors &sharded,
                                                 const NamedTensors &unsharded,
                                                 const NamedTensors &reference,
                                                 double epsilon,
                                                 const Tolerances &tolerances) {
  Index index = indexOf(sharded), plain = indexOf(unsharded);
  auto largest = largestMagnitudes(reference);
  std::vector<TensorReport> reports;
  for (const Named &tensor : reference) {
    const Named *ours = index.lookup(keyOf(tensor));
    const Named *theirs = plain.lookup(keyOf(tensor));
    double ofKind = largest[static_cast<int>(tensor.kind)];
    double floor = tolerances.roundingFloor * ofKind;
    if (!ours || !theirs) {
      reports.push_back(missing(tensor, Part::Rounding));
      continue;
    }
    reports.push_back(report(*ours, tensor, Part::Rounding, floor));
    TensorReport &result = reports.back();
    double alone = report(*theirs, tensor, Part::Rounding, floor).relError;
    result.limit = tolerances.roundingFactor * alone + tolerances.roundingSlack;
    if (tensor.value.rank() == 0)
      result.limit += tolerances.scalarEpsilons * epsilon;
    // In the program's own precision (below f64), the noise of a gradient may
    // be larger than the gradient. Then the error of the unsharded program is
    // only one sample of the noise, so the limit on the sharded program's error
    // is raised to the noise.
    double noise =
        allowedNoise(tensor, ofKind, tolerances, result.aboveNoiseCap) *
        epsilon / std::numeric_limits<double>::epsilon();
    double magnitude = difference(tensor.value, tensor.value).magnitude;
    if (noise >= magnitude && noise > 0) {
      result.limit = std::max(result.limit, noise / std::max(magnitude, floor));
      result.belowFloor = true;
    }
    // If the unsharded program overflows, the limit cannot be derived from its
    // error.
    if (!std::isfinite(alone))
      result.limit = tolerances.roundingSlack;
  }
  return reports;
}

ReplicaReport check::worstReplica(const NamedTensors &tensors) {
  ReplicaReport worst;
  for (const Named &tensor : tensors)
    if (tensor.replicaDifference > worst.largest ||
        (std::isnan(tensor.replicaDifference) && !std::isnan(worst.largest)))
      worst = {tensor.replicaDifference, tensor.name};
  return worst;
}
