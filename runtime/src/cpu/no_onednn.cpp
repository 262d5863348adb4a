// Replaces the oneDNN functions in builds for devices, in which the runtime's
// own loops compute all products.

#include "cpu/gemm.h"
#include "cpu/grouped.h"

using namespace cleave;

int64_t cleave::oneDnnGemmWorkspace(const program::Gemm &) { return -1; }

std::function<void()> cleave::makeOneDnnGemm(const program::Gemm &,
                                             const GemmBuffers &, int) {
  return nullptr;
}

bool cleave::fitsOneDnn(const program::GroupedGemm &) { return false; }

int64_t cleave::oneDnnGroupedWorkspace(const program::GroupedGemm &) {
  return 0;
}

std::function<void()> cleave::makeOneDnnGrouped(const program::GroupedGemm &,
                                                const GroupedBuffers &, int) {
  return nullptr;
}
