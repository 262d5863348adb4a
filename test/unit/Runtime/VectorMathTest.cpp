// Error bounds of the activations (and thus exp and erf) for every instruction
// set of this machine.

#include "Helpers.h"

#include "cpu/micro.h"

#include <limits>

using namespace cleave;
using namespace cleave::test;

namespace {
std::vector<const MicroSet *> availableSets() {
  std::vector<const MicroSet *> sets;
  for (const MicroSet *set : {&microBaseline, &microAvx2, &microAvx512})
    if (set->available())
      sets.push_back(set);
  return sets;
}

template <class T> std::vector<T> ramp(double low, double high, int count) {
  std::vector<T> values;
  for (int i = 0; i <= count; ++i)
    values.push_back(static_cast<T>(low + (high - low) * i / count));
  return values;
}

template <class T, class Exact>
double worst(const MicroKernels<T> &kernels, int activation,
             const std::vector<T> &xs, Exact exact) {
  std::vector<T> ys(xs.size());
  kernels.activate(activation, xs.data(), ys.data(),
                   static_cast<int64_t>(xs.size()));
  double error = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    long double y = exact(static_cast<long double>(xs[i]));
    double one = static_cast<double>(
        std::fabs(ys[i] - y) / std::max<long double>(std::fabs(y), 1e-30L));
    error = one <= error ? error : one;
  }
  return error;
}

long double silu(long double x) { return x / (1 + std::exp(-x)); }
long double geluErf(long double x) {
  return 0.5L * x * std::erfc(-x / std::sqrt(2.0L));
}

TEST(VectorMath, SiluShowsTheErrorOfExp) {
  for (const MicroSet *set : availableSets()) {
    SCOPED_TRACE(set->name);
    EXPECT_LT(worst(set->f32, 4, ramp<float>(-80, 80, 100003), silu), 4e-7);
    EXPECT_LT(worst(set->f64, 4, ramp<double>(-700, 700, 100003), silu), 9e-16);
  }
}

TEST(VectorMath, GeluErf) {
  for (const MicroSet *set : availableSets()) {
    SCOPED_TRACE(set->name);
    // For negative x the two terms of 1 + erf cancel, as they do in PyTorch.
    EXPECT_LT(worst(set->f32, 2, ramp<float>(0, 10, 10007), geluErf), 5e-7);
    EXPECT_LT(worst(set->f64, 2, ramp<double>(0, 10, 10007), geluErf), 1e-15);
  }
}

TEST(VectorMath, ExtremesAndNaN) {
  float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> xs = {-1000, 1000, infinity, NAN, -88, 0, 89};
  for (const MicroSet *set : availableSets()) {
    SCOPED_TRACE(set->name);
    std::vector<float> ys(xs.size());
    set->f32.activate(4, xs.data(), ys.data(), 7);
    EXPECT_EQ(ys[0], 0);
    EXPECT_EQ(ys[1], 1000);
    EXPECT_EQ(ys[2], infinity);
    EXPECT_TRUE(std::isnan(ys[3]));
    EXPECT_EQ(ys[5], 0);
    EXPECT_EQ(ys[6], 89);
  }
}
} // namespace
