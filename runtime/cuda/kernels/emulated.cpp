// The table of kernels that are compiled for CPUs, by name.

#include "emulated.h"

#include <map>
#include <string_view>

using namespace cleave;
using namespace cleave::cuda;

// One list for each kernel file, terminated by an entry without a name.
namespace cleave::cuda {
#define CLEAVE_FAMILY(family) extern const EmulatedKernel family##Kernels[];
#include "families.inc"
#undef CLEAVE_FAMILY
} // namespace cleave::cuda

const EmulatedKernel *cuda::findEmulated(const char *name) {
  static const std::map<std::string_view, const EmulatedKernel *> all = [] {
    std::map<std::string_view, const EmulatedKernel *> out;
    auto add = [&](const EmulatedKernel *kernel) {
      for (; kernel->name; ++kernel)
        out[kernel->name] = kernel;
    };
#define CLEAVE_FAMILY(family) add(family##Kernels);
#include "families.inc"
#undef CLEAVE_FAMILY
    return out;
  }();
  auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}
