// Commands that libraries compute: matrix products, grouped matrix products
// (experts), and convolutions.
#ifndef CLEAVE_PROGRAM_PRODUCTS_H
#define CLEAVE_PROGRAM_PRODUCTS_H

#include "cleave/program/values.h"

#include <cstdint>
#include <vector>

namespace cleave::program {

// A batch of matrices. `batchStrides` has one entry for each batch dimension of
// the Gemm; a stride of 0 broadcasts the matrix along that dimension.
struct MatrixRef {
  BufferRef buffer;
  std::vector<int64_t> batchStrides;
  int64_t rowStride = 0;
  int64_t colStride = 1;
};

enum class Activation : uint8_t { None, GeluTanh, GeluErf, Relu, Silu };
enum class GemmOperand : uint8_t { A, B };

// C = activation(alpha * A B + bias [+ C])
// A is [m, k], B [k, n], C [m, n], for each index of the batch. `bias` has n
// contiguous elements. `preActivation`, if present, receives the operand of the
// activation and has C's strides. All operands have the type `dtype`: f32, f64
// or bf16. A product of bf16 is summed in f32; with wideResult the result stays
// in f32, and there is no preActivation and no derivativeAt.
//
// Only on CUDA devices: with `derivativeAt`, which has C's strides, C = alpha *
// A B * activation'(derivativeAt). With `sums`, the operand `sumsOf` is also
// summed along k: `sums` receives one sum for each row of A or each column of
// B, in C's type.
struct Gemm {
  DType dtype = DType::F32;
  bool wideResult = false;    // with dtype bf16: C is f32
  std::vector<int64_t> batch; // empty: one matrix
  int64_t m = 0, n = 0, k = 0;
  MatrixRef a, b, c;
  double alpha = 1.0;
  bool accumulate = false;
  BufferRef bias;
  Activation activation = Activation::None;
  BufferRef preActivation;
  BufferRef derivativeAt;
  BufferRef sums;
  GemmOperand sumsOf = GemmOperand::A;
  BufferRef workspace; // gemmWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;

  constexpr DType resultType() const { return wideResult ? DType::F32 : dtype; }
  // The number of elements of `sums`.
  constexpr int64_t numSums() const { return sumsOf == GemmOperand::A ? m : n; }
};

// A matrix whose rows are addressed by strides: `strides` has one entry for
// each dimension of GroupedGemm::rows, and `column` is the stride within a row.
// Strides of operands that are only read may be 0 (broadcast).
struct RowsRef {
  BufferRef buffer;
  std::vector<int64_t> strides;
  int64_t column = 1;
};

// A grouped matrix product: row r is multiplied with matrix ids[r] of `e`
// matrices. Rows are indexed over the dimensions `rows`. A row whose id (i64)
// is outside [0, e) chooses no matrix. Without `outer`: c[r] = a[r] w[ids[r]],
// or zeros if the row chooses none. With `outer`: w[m] = sum of a[r]^T c[r]
// over the rows r that choose m. Rows of a have k elements, rows of c have n, a
// matrix is [k, n]; the batch stride of w is the distance between matrices. The
// dtype is f32, f64 or bf16; with wideResult a bf16 product has an f32 result.
// Rows that choose no matrix, and matrices that no row chooses, cost no work.
struct GroupedGemm {
  bool outer = false;
  DType dtype = DType::F32;
  bool wideResult = false;
  std::vector<int64_t> rows;
  int64_t e = 0, k = 0, n = 0;
  RowsRef a, c, ids;
  MatrixRef w;
  BufferRef workspace; // groupedWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;

  constexpr DType resultType() const { return wideResult ? DType::F32 : dtype; }
};

enum class ConvolutionKind : uint8_t { Forward, InputGrad, FilterGrad };
inline constexpr ConvolutionKind lastConvolutionKind =
    ConvolutionKind::FilterGrad;

// A convolution or a derivative of it, over one to three spatial dimensions:
//   y[n, m, o] = sum over c, k of
//                x[n, c, o * strides + k * dilations - low] w[m, c, k]
// with zeros outside of x. x is [samples, groups * channels, input...], w
// [groups * features, channels, kernel...], y [samples, groups * features,
// output...]. The features of a group read only the channels of the same group;
// c counts the channels of one group. All arrays are dense.
// Forward reads x and w and writes y. In a gradient, y is the cotangent of the
// result: InputGrad reads w and y and writes the cotangent of x; FilterGrad
// reads x and y and writes the cotangent of w. `low` zeros precede x along each
// dimension, and up to `high` zeros follow it: only as many windows are
// computed as `output` says, and the last ones may need fewer zeros. bf16 is
// summed in f32. `narrow` says that f32 operands have values of bf16, so that
// rounding them to TF32 changes nothing.
struct Convolution {
  ConvolutionKind kind = ConvolutionKind::Forward;
  DType dtype = DType::F32;
  bool narrow = false;
  int64_t samples = 0, groups = 1, channels = 0, features = 0;
  std::vector<int64_t> input, kernel, output;
  std::vector<int64_t> strides, dilations, low, high;
  BufferRef x, w, y;
  BufferRef workspace; // convolutionWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_PRODUCTS_H
