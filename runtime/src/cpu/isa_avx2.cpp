// Kernels for AVX2 with FMA: 12 of 16 registers accumulate.
#define CLEAVE_VECTOR_BYTES 32
#define CLEAVE_BLOCK_ROWS 6
#define CLEAVE_MICRO_SET microAvx2
#define CLEAVE_ISA_NAME "avx2"
#define CLEAVE_AVAILABLE                                                       \
  (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#include "cpu/isa.h"
