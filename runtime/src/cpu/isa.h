// The body of isa_*.cpp: compiles every kernel for one instruction set. The
// including file defines CLEAVE_VECTOR_BYTES, CLEAVE_BLOCK_ROWS (limited by the
// number of registers), CLEAVE_MICRO_SET and CLEAVE_AVAILABLE. Headers with
// inline functions must not be included here; see micro.h.
#include "cleave/philox.h"
#include "cpu/micro.h"

namespace {
using namespace cleave;

#include "cpu/vector_math.h"

#include "cpu/tile_gemm.h"

#include "cpu/gemm_kernels.h"

#include "cpu/attention_mask.h"

#include "cpu/attention_dropout.h"

#include "cpu/attention_kernels.h"

static_assert(gemmTileRows % Block<float>::rows == 0 &&
              attentionQueries % Block<float>::rows == 0 &&
              attentionKeys % Block<float>::rows == 0);
static_assert(gemmTileColumns % Block<float>::columns == 0 &&
              attentionKeys % Block<float>::columns == 0);

bool available() { return CLEAVE_AVAILABLE; }
} // namespace

const cleave::MicroSet cleave::CLEAVE_MICRO_SET = {
    CLEAVE_ISA_NAME,
    available,
    {gemmTile<float>, gemmScratch<float>, activate<float>,
     attentionForward<float>, attentionBackward<float>,
     attentionScratch<float>},
    {gemmTile<double>, gemmScratch<double>, activate<double>,
     attentionForward<double>, attentionBackward<double>,
     attentionScratch<double>},
    {gemmTile<Bf16>, gemmScratch<Bf16>, activate<Bf16>, attentionForward<Bf16>,
     attentionBackward<Bf16>, attentionScratch<Bf16>}};
