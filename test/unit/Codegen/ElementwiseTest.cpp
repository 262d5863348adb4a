// Kernels of elementwise operations and views.

#include "Harness.h"

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Fusion/Fusion.h"

#include "llvm/ADT/APFloat.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace cleave::test;

TEST(ElementwiseKernel, ChainWithBias) {
  checkKernel(R"(
    func.func @k(%x: tensor<5x7x19xf32>, %y: tensor<5x7x19xf32>, %bias: tensor<19xf32>) -> tensor<5x7x19xf32> {
      %b = nn.broadcast %bias dims = [2] : tensor<19xf32> -> tensor<5x7x19xf32>
      %s = arith.addf %x, %b : tensor<5x7x19xf32>
      %c = arith.constant dense<0.5> : tensor<5x7x19xf32>
      %t = arith.mulf %s, %c : tensor<5x7x19xf32>
      %r = arith.addf %t, %y : tensor<5x7x19xf32>
      return %r : tensor<5x7x19xf32>
    })");
}

TEST(ElementwiseKernel, LongFlatWithScalars) {
  checkKernel(R"(
    func.func @k(%x: tensor<2500xf32>, %a: tensor<f32>) -> (tensor<2500xf32>, tensor<2500xi1>) {
      %b = nn.broadcast %a dims = [] : tensor<f32> -> tensor<2500xf32>
      %r = arith.mulf %x, %b : tensor<2500xf32>
      %m = arith.cmpf olt, %r, %x : tensor<2500xf32>
      return %r, %m : tensor<2500xf32>, tensor<2500xi1>
    })");
}

// Rounds to the nearest bf16, ties to even.
static double toBFloat16(double x) {
  llvm::APFloat value(static_cast<float>(x));
  bool losesInfo;
  value.convert(llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven,
                &losesInfo);
  return value.convertToDouble();
}

// Arithmetic in bf16 rounds after each operation, on every processor. (The
// interpreter computes in double.)
TEST(ElementwiseKernel, BFloat16) {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(R"(
    func.func @k(%x: tensor<3x37xf32>, %y: tensor<3x37xf32>) -> tensor<3x37xf32> {
      %a = arith.truncf %x : tensor<3x37xf32> to tensor<3x37xbf16>
      %b = arith.truncf %y : tensor<3x37xf32> to tensor<3x37xbf16>
      %p = arith.mulf %a, %b : tensor<3x37xbf16>
      %s = arith.addf %p, %a : tensor<3x37xbf16>
      %r = arith.extf %s : tensor<3x37xbf16> to tensor<3x37xf32>
      return %r : tensor<3x37xf32>
    })");
  ASSERT_TRUE(module);
  auto kernel = *module->getOps<mlir::func::FuncOp>().begin();
  auto type = llvm::cast<mlir::RankedTensorType>(kernel.getArgumentTypes()[0]);
  cleave::Tensor x(type), y(type);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.floats[i] = float(std::sin(i * 1.7) * std::exp2(i % 9 - 4));
    y.floats[i] = float(std::cos(i * 0.9) * std::exp2(i % 7 - 3));
  }
  std::vector<cleave::Tensor> found = runKernel(kernel, {x, y});
  ASSERT_EQ(found.size(), 1u);
  for (int64_t i = 0; i < x.size(); ++i) {
    double a = toBFloat16(x.floats[i]), b = toBFloat16(y.floats[i]);
    EXPECT_EQ(found[0].floats[i], toBFloat16(toBFloat16(a * b) + a)) << i;
  }
}

// A kernel keeps roundings that the model itself contains (%a). It does not
// round values whose rounding is only for storage (%c).
TEST(ElementwiseKernel, Roundings) {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(R"(
    func.func @k(%x: tensor<37xf64>) -> (tensor<37xf64>, tensor<37xf64>) {
      %a = arith.truncf %x : tensor<37xf64> to tensor<37xf32>
      %b = arith.extf %a : tensor<37xf32> to tensor<37xf64>
      %c = arith.truncf %x {nn.storage} : tensor<37xf64> to tensor<37xf32>
      %d = arith.extf %c : tensor<37xf32> to tensor<37xf64>
      return %b, %d : tensor<37xf64>, tensor<37xf64>
    })");
  ASSERT_TRUE(module);
  auto kernel = *module->getOps<mlir::func::FuncOp>().begin();
  cleave::Tensor x(
      llvm::cast<mlir::RankedTensorType>(kernel.getArgumentTypes()[0]));
  for (int64_t i = 0; i < x.size(); ++i)
    x.floats[i] = std::sin(i * 1.7) * 4;
  std::vector<cleave::Tensor> found = runKernel(kernel, {x});
  ASSERT_EQ(found.size(), 2u);
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(found[0].floats[i], double(float(x.floats[i]))) << i;
    EXPECT_EQ(found[1].floats[i], x.floats[i]) << i;
  }
}

// Math functions of bf16 values are computed in f32 and rounded to bf16, also
// on a GPU.
TEST(ElementwiseKernel, FunctionsOfBFloat16) {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(R"(
    func.func @k(%x: tensor<37xf32>) -> tensor<37xf32> {
      %a = arith.truncf %x : tensor<37xf32> to tensor<37xbf16>
      %e = math.exp %a : tensor<37xbf16>
      %s = math.sqrt %e : tensor<37xbf16>
      %m = arith.maximumf %s, %a : tensor<37xbf16>
      %r = arith.extf %m : tensor<37xbf16> to tensor<37xf32>
      return %r : tensor<37xf32>
    })");
  ASSERT_TRUE(module);
  auto kernel = *module->getOps<mlir::func::FuncOp>().begin();
  cleave::Tensor x(
      llvm::cast<mlir::RankedTensorType>(kernel.getArgumentTypes()[0]));
  for (int64_t i = 0; i < x.size(); ++i)
    x.floats[i] = float(std::sin(i * 1.7) * 4);
  for (const std::vector<cleave::Tensor> &found :
       {runKernel(kernel, {x}), runKernelOnGpu(kernel, {x})}) {
    ASSERT_EQ(found.size(), 1u);
    for (int64_t i = 0; i < x.size(); ++i) {
      double a = toBFloat16(x.floats[i]);
      double root = toBFloat16(std::sqrt(toBFloat16(std::exp(a))));
      EXPECT_EQ(found[0].floats[i], std::max(root, a)) << i;
    }
  }
  ASSERT_TRUE(mlir::succeeded(cleave::kernels::annotateKernel(kernel)));
  auto emitted = cleave::codegen::emitGpuKernels(*module);
  ASSERT_TRUE(mlir::succeeded(emitted));
  EXPECT_TRUE(
      mlir::succeeded(cleave::codegen::compileToPtx(**emitted, "sm_80")));
}
