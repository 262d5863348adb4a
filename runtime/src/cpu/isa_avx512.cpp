// Kernels for AVX-512: 24 of 32 registers accumulate.
#define CLEAVE_VECTOR_BYTES 64
#define CLEAVE_BLOCK_ROWS 12
#define CLEAVE_MICRO_SET microAvx512
#define CLEAVE_ISA_NAME "avx512"
#define CLEAVE_AVAILABLE                                                       \
  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&  \
   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
#include "cpu/isa.h"
