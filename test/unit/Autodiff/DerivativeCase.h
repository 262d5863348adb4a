// A function whose derivative is compared with central differences
// (DerivativeTest.cpp).

#ifndef CLEAVE_TEST_UNIT_AUTODIFF_DERIVATIVECASE_H
#define CLEAVE_TEST_UNIT_AUTODIFF_DERIVATIVECASE_H

#include <vector>

namespace cleave {

struct Case {
  const char *name;
  std::vector<const char *> arguments; // "2x3"
  const char *result;                  // type of %y, "2x3"
  const char *body;
  double low = -1.5, high = 1.5; // where the arguments are drawn from
};

/// Loops.
std::vector<Case> loopCases();

} // namespace cleave

#endif
