// Replaces support.cpp in builds without the CUDA toolkit.

#include "backends.h"

const cleave::DeviceSupport *cleave::cudaSupport() { return nullptr; }
