// How much tests try: the covering part of each day, or all of it.
#ifndef CLEAVE_TEST_UNIT_TRIESALL_H
#define CLEAVE_TEST_UNIT_TRIESALL_H

#include <cstdlib>

namespace cleave::test {

/// Whether a test tries all that it knows, however long that takes
/// (`tools/check
/// --all` sets CLEAVE_TEST_ALL); each day it tries a part that covers the same
/// code.
inline bool triesAll() { return std::getenv("CLEAVE_TEST_ALL") != nullptr; }

} // namespace cleave::test

#endif
