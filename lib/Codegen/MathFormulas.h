// Mathematical functions as arithmetic, for the patterns of ExpandMath.cpp.

#ifndef CLEAVE_LIB_CODEGEN_MATHFORMULAS_H
#define CLEAVE_LIB_CODEGEN_MATHFORMULAS_H

#include "MathBuilder.h"

namespace cleave::codegen::formulas {

// Functions in single precision with errors of a few units in the last place.
mlir::Value exp32(MathBuilder &m, mlir::Value x);
mlir::Value log32(MathBuilder &m, mlir::Value x);
mlir::Value tanh32(MathBuilder &m, mlir::Value x);
mlir::Value erf32(MathBuilder &m, mlir::Value x);

// Double precision.
mlir::Value exp64(MathBuilder &m, mlir::Value x);
mlir::Value log64(MathBuilder &m, mlir::Value x);

// Functions computed in double to the accuracy of single precision.
mlir::Value sine64(MathBuilder &m, mlir::Value x, int64_t quarters);
mlir::Value power64(MathBuilder &m, mlir::Value x, mlir::Value y);
mlir::Value expM1(MathBuilder &m, mlir::Value x);
mlir::Value log1P(MathBuilder &m, mlir::Value x);
mlir::Value sinh(MathBuilder &m, mlir::Value x);
mlir::Value arcTangent(MathBuilder &m, mlir::Value x);
mlir::Value arcSine(MathBuilder &m, mlir::Value x);
mlir::Value arcTangent2(MathBuilder &m, mlir::Value y, mlir::Value x);
mlir::Value cubeRoot(MathBuilder &m, mlir::Value x);
mlir::Value arSinh(MathBuilder &m, mlir::Value x);
mlir::Value arCosh(MathBuilder &m, mlir::Value x);
mlir::Value arTanh(MathBuilder &m, mlir::Value x);

} // namespace cleave::codegen::formulas

#endif
