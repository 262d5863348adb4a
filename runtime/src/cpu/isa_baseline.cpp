// Kernels for any x86-64: SSE2.
#define CLEAVE_VECTOR_BYTES 16
#define CLEAVE_BLOCK_ROWS 4
#define CLEAVE_MICRO_SET microBaseline
#define CLEAVE_ISA_NAME "baseline"
#define CLEAVE_AVAILABLE true
#include "cpu/isa.h"
