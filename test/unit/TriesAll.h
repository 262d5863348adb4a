// How many cases tests run: a covering sample by default, or all of them.
#ifndef CLEAVE_TEST_UNIT_TRIESALL_H
#define CLEAVE_TEST_UNIT_TRIESALL_H

#include <cstdlib>

namespace cleave::test {

/// Whether a test runs all of its cases, however long that takes (`tools/check
/// --all` sets CLEAVE_TEST_ALL). Otherwise it runs a sample that covers the
/// same code.
inline bool triesAll() { return std::getenv("CLEAVE_TEST_ALL") != nullptr; }

} // namespace cleave::test

#endif
