// Tests run a covering sample of their cases by default, or all cases if
// CLEAVE_TEST_ALL is set.
#ifndef CLEAVE_TEST_UNIT_TRIESALL_H
#define CLEAVE_TEST_UNIT_TRIESALL_H

#include <cstdlib>

namespace cleave::test {

/// Returns whether a test runs all of its cases, however long that takes
/// (`tools/check --all` sets CLEAVE_TEST_ALL). Otherwise a test runs a sample
/// of cases that covers the same code.
inline bool triesAll() { return std::getenv("CLEAVE_TEST_ALL") != nullptr; }

} // namespace cleave::test

#endif
