// Choosing the instruction set.

#include "cpu/micro.h"

#include <cstdlib>
#include <cstring>

using namespace cleave;

static const MicroSet &choose() {
  const MicroSet *sets[] = {&microAvx512, &microAvx2, &microBaseline};
  const char *wanted = std::getenv("CLEAVE_ISA");
  for (const MicroSet *set : sets)
    if (set->available() && wanted && std::strcmp(wanted, set->name) == 0)
      return *set;
  for (const MicroSet *set : sets)
    if (set->available())
      return *set;
  return microBaseline;
}

const MicroSet &cleave::microKernels() {
  static const MicroSet &set = choose();
  return set;
}
