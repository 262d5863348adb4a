// Programs under random shardings against the interpreter: the global function
// on one device, the partitioned one on all ranks. Sizes leave remainders,
// padding is poisoned, dimensions are split by several axes and by sub-axes.
//
// A failure prints the program with its shardings, which is a test case itself.

#include "Context.h"

#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Partition/Boundary.h"
#include "cleave/Partition/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

struct Case {
  const char *name;
  std::vector<const char *> arguments; // "2x3xf64"; i64 draws from [0, limit)
  std::vector<const char *> results;
  const char *body; // defines %y0, %y1, ... from %a, %b, ...
  int64_t limit = 5;
};

std::vector<Case> cases() {
  return {
      {"elementwise", {"5x6xf64", "5x6xf64"}, {"5x6xf64"}, R"(
        %0 = arith.mulf %a, %b : tensor<5x6xf64>
        %1 = math.tanh %0 : tensor<5x6xf64>
        %y0 = arith.addf %1, %a : tensor<5x6xf64>)"},
      {"constants", {"5x6xf64"}, {"5x6xf64"}, R"(
        %c = arith.constant dense<2.0> : tensor<5x6xf64>
        %0 = arith.mulf %a, %c : tensor<5x6xf64>
        %i = nn.iota dim = 1 : tensor<5x6xi64>
        %j = nn.iota dim = 0 : tensor<5x6xi64>
        %p = arith.cmpi slt, %i, %j : tensor<5x6xi64>
        %y0 = arith.select %p, %0, %a : tensor<5x6xi1>, tensor<5x6xf64>)"},
      {"dense_constant", {"3x2xf64"}, {"3x2xf64"}, R"(
        %c = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf64>
        %y0 = arith.mulf %a, %c : tensor<3x2xf64>)"},
      {"reshard",
       {"8x6x5xf64"},
       {"8x6x5xf64"},
       "%y0 = nn.save %a : tensor<8x6x5xf64>"},
      {"reshard_uneven",
       {"5x7xf64"},
       {"5x7xf64"},
       "%y0 = nn.save %a : tensor<5x7xf64>"},
      {"reshard_long",
       {"13xf64"},
       {"13xf64"},
       "%y0 = nn.save %a : tensor<13xf64>"},
      {"reshard_even",
       {"8x12xf64"},
       {"8x12xf64"},
       "%y0 = nn.save %a : tensor<8x12xf64>"},
      {"einsum",
       {"3x5xf64", "5x7xf64"},
       {"3x7xf64"},
       R"(%y0 = nn.einsum "bh,hf->bf" %a, %b : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<3x7xf64>)"},
      {"mlp", {"4x6xf64", "6x10xf64", "10x6xf64", "6xf64"}, {"4x6xf64"}, R"(
        %0 = nn.einsum "bh,hf->bf" %a, %b : tensor<4x6xf64>, tensor<6x10xf64> -> tensor<4x10xf64>
        %1 = nn.gelu tanh %0 : tensor<4x10xf64>
        %2 = nn.einsum "bf,fh->bh" %1, %c : tensor<4x10xf64>, tensor<10x6xf64> -> tensor<4x6xf64>
        %3 = nn.broadcast %d dims = [1] : tensor<6xf64> -> tensor<4x6xf64>
        %4 = arith.addf %2, %3 : tensor<4x6xf64>
        %y0 = arith.addf %4, %a : tensor<4x6xf64>)"},
      {"partial_sums",
       {"4x6xf64", "6x5xf64", "4x6xf64", "6x5xf64"},
       {"4x5xf64", "f64"},
       R"(
        %0 = nn.einsum "bh,hf->bf" %a, %b : tensor<4x6xf64>, tensor<6x5xf64> -> tensor<4x5xf64>
        %1 = nn.einsum "bh,hf->bf" %c, %d : tensor<4x6xf64>, tensor<6x5xf64> -> tensor<4x5xf64>
        %2 = arith.addf %0, %1 : tensor<4x5xf64>
        %3 = nn.transpose %2 [1, 0] : tensor<4x5xf64> -> tensor<5x4xf64>
        %4 = nn.transpose %3 [1, 0] : tensor<5x4xf64> -> tensor<4x5xf64>
        %y0 = math.exp %4 : tensor<4x5xf64>
        %5 = nn.reduce sum %a dims = [0, 1] : tensor<4x6xf64> -> tensor<f64>
        %6 = nn.reduce sum %b dims = [0, 1] : tensor<6x5xf64> -> tensor<f64>
        %7 = arith.addf %5, %6 : tensor<f64>
        %8 = arith.constant dense<3.0> : tensor<f64>
        %9 = arith.addf %7, %8 : tensor<f64>
        %y1 = math.tanh %9 : tensor<f64>)"},
      {"reduce", {"5x3x4xf64"}, {"3xf64", "5x4xf64", "4xf64", "f64"}, R"(
        %y0 = nn.reduce sum %a dims = [0, 2] : tensor<5x3x4xf64> -> tensor<3xf64>
        %y1 = nn.reduce max %a dims = [1] : tensor<5x3x4xf64> -> tensor<5x4xf64>
        %y2 = nn.reduce min %a dims = [0, 1] : tensor<5x3x4xf64> -> tensor<4xf64>
        %y3 = nn.reduce sum %a dims = [0, 1, 2] : tensor<5x3x4xf64> -> tensor<f64>)"},
      {"reshape",
       {"4x6xf64"},
       {"24xf64", "2x2x6xf64", "4x3x2xf64", "8x3xf64", "3x8xf64"},
       R"(
        %y0 = nn.reshape %a : tensor<4x6xf64> -> tensor<24xf64>
        %y1 = nn.reshape %a : tensor<4x6xf64> -> tensor<2x2x6xf64>
        %y2 = nn.reshape %a : tensor<4x6xf64> -> tensor<4x3x2xf64>
        %y3 = nn.reshape %a : tensor<4x6xf64> -> tensor<8x3xf64>
        %y4 = nn.reshape %a : tensor<4x6xf64> -> tensor<3x8xf64>)"},
      {"shape",
       {"4x6xf64", "4x3xf64"},
       {"6x4xf64", "4x3xf64", "4x9xf64", "5x6xf64"},
       R"(
        %y0 = nn.transpose %a [1, 0] : tensor<4x6xf64> -> tensor<6x4xf64>
        %y1 = nn.slice %a [0, 1] [4, 3] [1, 2] : tensor<4x6xf64> -> tensor<4x3xf64>
        %y2 = nn.concat %a, %b dim = 1 : tensor<4x6xf64>, tensor<4x3xf64> -> tensor<4x9xf64>
        %y3 = nn.pad %a low = [0, 0] high = [1, 0] value = 1.0 : tensor<4x6xf64> -> tensor<5x6xf64>)"},
      {"moves",
       {"7x5xf64", "3x5xf64", "10xi64"},
       {"4x5xf64", "7x5xf64", "10x5xf64", "12x6xf64", "1x5xf64", "5xi64",
        "3x2xf64"},
       R"(
        %y0 = nn.slice %a [2, 0] [4, 5] [1, 1] : tensor<7x5xf64> -> tensor<4x5xf64>
        %y1 = nn.slice %a [6, 4] [7, 5] [-1, -1] : tensor<7x5xf64> -> tensor<7x5xf64>
        %y2 = nn.concat %b, %a dim = 0 : tensor<3x5xf64>, tensor<7x5xf64> -> tensor<10x5xf64>
        %y3 = nn.pad %a low = [3, 0] high = [2, 1] value = 0.5 : tensor<7x5xf64> -> tensor<12x6xf64>
        %y4 = nn.slice %a [5, 0] [1, 5] [1, 1] : tensor<7x5xf64> -> tensor<1x5xf64>
        %y5 = nn.slice %c [1] [5] [2] : tensor<10xi64> -> tensor<5xi64>
        %y6 = nn.slice %a [6, 1] [3, 2] [-3, 2] : tensor<7x5xf64> -> tensor<3x2xf64>)"},
      {"moves_of_partial",
       {"3x5xf64", "5x7xf64"},
       {"3x7xf64", "3x9xf64", "3x10xf64"},
       R"(
        %0 = nn.einsum "bk,kh->bh" %a, %b : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<3x7xf64>
        %y0 = nn.slice %0 [0, 6] [3, 7] [1, -1] : tensor<3x7xf64> -> tensor<3x7xf64>
        %1 = nn.einsum "bk,kh->bh" %a, %b : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<3x7xf64>
        %y1 = nn.pad %1 low = [0, 1] high = [0, 1] value = 0.0 : tensor<3x7xf64> -> tensor<3x9xf64>
        %2 = nn.reduce max %a dims = [] : tensor<3x5xf64> -> tensor<3x5xf64>
        %3 = nn.slice %0 [0, 1] [3, 5] [1, 1] : tensor<3x7xf64> -> tensor<3x5xf64>
        %y2 = nn.concat %3, %2 dim = 1 : tensor<3x5xf64>, tensor<3x5xf64> -> tensor<3x10xf64>)"},
      {"loop", {"4x6xf64", "6x6xf64", "6xf64"}, {"4x6xf64", "6xf64"}, R"(
        %lb = arith.constant 0 : index
        %ub = arith.constant 3 : index
        %one = arith.constant 1 : index
        %y0, %y1 = scf.for %i = %lb to %ub step %one iter_args(%h = %a, %s = %c) -> (tensor<4x6xf64>, tensor<6xf64>) {
          %0 = nn.einsum "bh,hf->bf" %h, %b : tensor<4x6xf64>, tensor<6x6xf64> -> tensor<4x6xf64>
          %1 = math.tanh %0 : tensor<4x6xf64>
          %2 = nn.reduce sum %1 dims = [0] : tensor<4x6xf64> -> tensor<6xf64>
          %3 = arith.addf %s, %2 : tensor<6xf64>
          scf.yield %1, %3 : tensor<4x6xf64>, tensor<6xf64>
        })"},
      {"branch", {"4x6xf64", "6x6xf64"}, {"4x6xf64", "6x4xf64"}, R"(
        %z = arith.constant dense<0.0> : tensor<f64>
        %t = nn.reduce sum %a dims = [0, 1] : tensor<4x6xf64> -> tensor<f64>
        %p = arith.cmpf ogt, %t, %z : tensor<f64>
        %q = tensor.extract %p[] : tensor<i1>
        %y0 = scf.if %q -> (tensor<4x6xf64>) {
          %0 = nn.einsum "bh,hf->bf" %a, %b : tensor<4x6xf64>, tensor<6x6xf64> -> tensor<4x6xf64>
          scf.yield %0 : tensor<4x6xf64>
        } else {
          %0 = nn.softmax %a : tensor<4x6xf64>
          scf.yield %0 : tensor<4x6xf64>
        }
        %y1 = nn.transpose %a [1, 0] : tensor<4x6xf64> -> tensor<6x4xf64>)"},
      {"loop_in_branch", {"5x3xf64", "5x3xf64"}, {"5x3xf64"}, R"(
        %lb = arith.constant 1 : index
        %ub = arith.constant 6 : index
        %two = arith.constant 2 : index
        %no = arith.constant false
        %y0 = scf.if %no -> (tensor<5x3xf64>) {
          scf.yield %b : tensor<5x3xf64>
        } else {
          %0 = scf.for %i = %lb to %ub step %two iter_args(%h = %a) -> (tensor<5x3xf64>) {
            %1 = nn.softmax %h : tensor<5x3xf64>
            %2 = nn.slice %1 [4, 0] [5, 3] [-1, 1] : tensor<5x3xf64> -> tensor<5x3xf64>
            %3 = arith.addf %2, %b : tensor<5x3xf64>
            scf.yield %3 : tensor<5x3xf64>
          }
          scf.yield %0 : tensor<5x3xf64>
        })"},
      {"conv",
       {"2x3x7xf64", "4x3x3xf64", "2x4x4xf64"},
       {"2x4x4xf64", "2x3x7xf64", "4x3x3xf64"},
       R"(
        %y0 = nn.conv %a, %b strides = [2] dilations = [1] low = [1] high = [1] groups = 1
          : tensor<2x3x7xf64>, tensor<4x3x3xf64> -> tensor<2x4x4xf64>
        %y1 = nn.conv_input_grad %c, %b strides = [2] dilations = [1] low = [1] high = [1] groups = 1
          : tensor<2x4x4xf64>, tensor<4x3x3xf64> -> tensor<2x3x7xf64>
        %y2 = nn.conv_filter_grad %c, %a strides = [2] dilations = [1] low = [1] high = [1] groups = 1
          : tensor<2x4x4xf64>, tensor<2x3x7xf64> -> tensor<4x3x3xf64>)"},
      {"conv_even",
       {"2x3x8x5xf64", "4x3x2x3xf64", "2x4x4x7xf64"},
       {"2x4x4x7xf64", "2x3x8x5xf64", "4x3x2x3xf64"},
       R"(
        %y0 = nn.conv %a, %b strides = [2, 1] dilations = [1, 1] low = [0, 2] high = [0, 2] groups = 1
          : tensor<2x3x8x5xf64>, tensor<4x3x2x3xf64> -> tensor<2x4x4x7xf64>
        %y1 = nn.conv_input_grad %c, %b strides = [2, 1] dilations = [1, 1] low = [0, 2] high = [0, 2] groups = 1
          : tensor<2x4x4x7xf64>, tensor<4x3x2x3xf64> -> tensor<2x3x8x5xf64>
        %y2 = nn.conv_filter_grad %c, %a strides = [2, 1] dilations = [1, 1] low = [0, 2] high = [0, 2] groups = 1
          : tensor<2x4x4x7xf64>, tensor<2x3x8x5xf64> -> tensor<4x3x2x3xf64>)"},
      {"conv_groups",
       {"2x4x9xf64", "8x2x3xf64", "2x8x5xf64"},
       {"2x8x5xf64", "2x4x9xf64", "8x2x3xf64"},
       R"(
        %y0 = nn.conv %a, %b strides = [1] dilations = [2] low = [0] high = [0] groups = 2
          : tensor<2x4x9xf64>, tensor<8x2x3xf64> -> tensor<2x8x5xf64>
        %y1 = nn.conv_input_grad %c, %b strides = [1] dilations = [2] low = [0] high = [0] groups = 2
          : tensor<2x8x5xf64>, tensor<8x2x3xf64> -> tensor<2x4x9xf64>
        %y2 = nn.conv_filter_grad %c, %a strides = [1] dilations = [2] low = [0] high = [0] groups = 2
          : tensor<2x8x5xf64>, tensor<2x4x9xf64> -> tensor<8x2x3xf64>)"},
      {"conv_depthwise",
       {"2x6x5xf64", "6x1x3xf64", "2x6x5xf64"},
       {"2x6x5xf64", "2x6x5xf64", "6x1x3xf64"},
       R"(
        %y0 = nn.conv %a, %b strides = [1] dilations = [1] low = [1] high = [1] groups = 6
          : tensor<2x6x5xf64>, tensor<6x1x3xf64> -> tensor<2x6x5xf64>
        %y1 = nn.conv_input_grad %c, %b strides = [1] dilations = [1] low = [1] high = [1] groups = 6
          : tensor<2x6x5xf64>, tensor<6x1x3xf64> -> tensor<2x6x5xf64>
        %y2 = nn.conv_filter_grad %c, %a strides = [1] dilations = [1] low = [1] high = [1] groups = 6
          : tensor<2x6x5xf64>, tensor<2x6x5xf64> -> tensor<6x1x3xf64>)"},
      {"pool",
       {"2x3x9xf64", "2x3x5xf64"},
       {"2x3x5xf64", "2x3x5xf64", "2x3x9xf64", "2x3x9xf64"},
       R"(
        %y0 = nn.pool max %a window = [3] strides = [2] dilations = [1] low = [1] high = [1]
          : tensor<2x3x9xf64> -> tensor<2x3x5xf64>
        %y1 = nn.pool sum %a window = [3] strides = [2] dilations = [1] low = [1] high = [1]
          : tensor<2x3x9xf64> -> tensor<2x3x5xf64>
        %y2 = nn.pool_grad max %b, %a window = [3] strides = [2] dilations = [1] low = [1] high = [1]
          : tensor<2x3x5xf64>, tensor<2x3x9xf64> -> tensor<2x3x9xf64>
        %y3 = nn.pool_grad sum %b, %a window = [3] strides = [2] dilations = [1] low = [1] high = [1]
          : tensor<2x3x5xf64>, tensor<2x3x9xf64> -> tensor<2x3x9xf64>)"},
      {"pool_plane",
       {"1x2x6x8xf64", "1x2x5x4xf64"},
       {"1x2x5x4xf64", "1x2x6x8xf64"},
       R"(
        %y0 = nn.pool max %a window = [2, 2] strides = [1, 2] dilations = [1, 1] low = [0, 0] high = [0, 0]
          : tensor<1x2x6x8xf64> -> tensor<1x2x5x4xf64>
        %y1 = nn.pool_grad max %b, %a window = [2, 2] strides = [1, 2] dilations = [1, 1] low = [0, 0] high = [0, 0]
          : tensor<1x2x5x4xf64>, tensor<1x2x6x8xf64> -> tensor<1x2x6x8xf64>)"},
      {"top_k",
       {"3x7xf64", "2x2x9xi64"},
       {"3x4xf64", "3x4xi64", "2x2x3xf64", "2x2x3xi64"},
       R"(
        %y0, %y1 = nn.top_k %a k = 4 : tensor<3x7xf64> -> tensor<3x4xf64>, tensor<3x4xi64>
        %0 = arith.sitofp %b : tensor<2x2x9xi64> to tensor<2x2x9xf64>
        %y2, %y3 = nn.top_k %0 k = 3 : tensor<2x2x9xf64> -> tensor<2x2x3xf64>, tensor<2x2x3xi64>)",
       3},
      {"gather_i32",
       {"3x5x2xf64", "2x3xi64"},
       {"3x2x3x2xf64", "3x5x2xf64"},
       R"(
        %0 = arith.trunci %b : tensor<2x3xi64> to tensor<2x3xi32>
        %y0 = nn.gather %a, %0 dim = 1 : tensor<3x5x2xf64>, tensor<2x3xi32> -> tensor<3x2x3x2xf64>
        %y1 = nn.scatter_add %0, %y0 dim = 1 : tensor<2x3xi32>, tensor<3x2x3x2xf64> -> tensor<3x5x2xf64>)",
       7},
      {"gather",
       {"5x3xf64", "2x4xi64"},
       {"2x4x3xf64"},
       "%y0 = nn.gather %a, %b dim = 0 : tensor<5x3xf64>, tensor<2x4xi64> -> "
       "tensor<2x4x3xf64>"},
      {"gather_inner",
       {"3x5xf64", "4xi64"},
       {"3x4xf64"},
       "%y0 = nn.gather %a, %b dim = 1 : tensor<3x5xf64>, tensor<4xi64> -> "
       "tensor<3x4xf64>"},
      {"scatter_add",
       {"2x4xi64", "2x4x3xf64"},
       {"5x3xf64"},
       "%y0 = nn.scatter_add %a, %b dim = 0 : tensor<2x4xi64>, "
       "tensor<2x4x3xf64> -> tensor<5x3xf64>"},
      {"argmax",
       {"3x5xf64"},
       {"3xi64"},
       "%y0 = nn.argmax %a dim = 1 : tensor<3x5xf64> -> tensor<3xi64>"},
      {"softmax",
       {"3x5xf64"},
       {"3x5xf64"},
       "%y0 = nn.softmax %a : tensor<3x5xf64>"},
      {"layer_norm",
       {"2x3x4xf64", "4xf64", "4xf64", "2x3x4xf64"},
       {"2x3x4xf64", "2x3x4xf64"},
       R"(
        %y0, %mean, %rstd = nn.layer_norm %a, %b, %c epsilon = 1.0e-5
          : (tensor<2x3x4xf64>, tensor<4xf64>, tensor<4xf64>)
          -> (tensor<2x3x4xf64>, tensor<2x3xf64>, tensor<2x3xf64>)
        %y1 = nn.layer_norm_grad %d, %a, %b, %mean, %rstd
          : (tensor<2x3x4xf64>, tensor<2x3x4xf64>, tensor<4xf64>, tensor<2x3xf64>, tensor<2x3xf64>)
          -> tensor<2x3x4xf64>)"},
      {"rms_norm", {"5x4xf64", "4xf64", "5x4xf64"}, {"5x4xf64", "5x4xf64"}, R"(
        %y0, %rstd = nn.rms_norm %a, %b epsilon = 1.0e-5
          : (tensor<5x4xf64>, tensor<4xf64>) -> (tensor<5x4xf64>, tensor<5xf64>)
        %y1 = nn.rms_norm_grad %c, %a, %b, %rstd
          : (tensor<5x4xf64>, tensor<5x4xf64>, tensor<4xf64>, tensor<5xf64>) -> tensor<5x4xf64>)"},
      {"softmax_rows", {"2x3x7xf64"}, {"2x3x7xf64", "2x7xf64"}, R"(
        %y0 = nn.softmax %a : tensor<2x3x7xf64>
        %y1 = nn.reduce sum %y0 dims = [1] : tensor<2x3x7xf64> -> tensor<2x7xf64>)"},
      {"argmax_ties",
       {"4x9xi64", "9x4xi64"},
       {"4xi64", "4xi64"},
       R"(
        %y0 = nn.argmax %a dim = 1 : tensor<4x9xi64> -> tensor<4xi64>
        %y1 = nn.argmax %b dim = 0 : tensor<9x4xi64> -> tensor<4xi64>)",
       3},
      {"norm_statistics",
       {"3x7xf64", "7xf64", "7xf64"},
       {"3x7xf64", "3xf64", "3xf64", "3x7xf64", "3xf64"},
       R"(
        %y0, %y1, %y2 = nn.layer_norm %a, %b, %c epsilon = 1.0e-5
          : (tensor<3x7xf64>, tensor<7xf64>, tensor<7xf64>)
          -> (tensor<3x7xf64>, tensor<3xf64>, tensor<3xf64>)
        %y3, %y4 = nn.rms_norm %y0, %b epsilon = 1.0e-5
          : (tensor<3x7xf64>, tensor<7xf64>) -> (tensor<3x7xf64>, tensor<3xf64>))"},
      {"norm_of_partial",
       {"3x5xf64", "5x7xf64", "7xf64", "3x7xf64"},
       {"3x7xf64", "3x7xf64", "7xf64"},
       R"(
        %0 = nn.einsum "bk,kh->bh" %a, %b : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<3x7xf64>
        %y0, %mean, %rstd = nn.layer_norm %0, %c, %c epsilon = 1.0e-5
          : (tensor<3x7xf64>, tensor<7xf64>, tensor<7xf64>)
          -> (tensor<3x7xf64>, tensor<3xf64>, tensor<3xf64>)
        %1 = nn.einsum "bk,kh->bh" %a, %b : tensor<3x5xf64>, tensor<5x7xf64> -> tensor<3x7xf64>
        %y1 = nn.layer_norm_grad %1, %d, %c, %mean, %rstd
          : (tensor<3x7xf64>, tensor<3x7xf64>, tensor<7xf64>, tensor<3xf64>, tensor<3xf64>)
          -> tensor<3x7xf64>
        %2 = arith.mulf %1, %y0 : tensor<3x7xf64>
        %y2 = nn.reduce sum %2 dims = [0] : tensor<3x7xf64> -> tensor<7xf64>)"},
      {"cross_entropy",
       {"3x4x7xf64", "3x4xi64", "3x4xf64"},
       {"3x4xf64", "3x4x7xf64", "f64"},
       R"(
        %y0, %lse = nn.cross_entropy %a, %b ignore_index = 2
          : (tensor<3x4x7xf64>, tensor<3x4xi64>) -> (tensor<3x4xf64>, tensor<3x4xf64>)
        %y1 = nn.cross_entropy_grad %c, %a, %b, %lse ignore_index = 2
          : (tensor<3x4xf64>, tensor<3x4x7xf64>, tensor<3x4xi64>, tensor<3x4xf64>) -> tensor<3x4x7xf64>
        %y2 = nn.reduce sum %y0 dims = [0, 1] : tensor<3x4xf64> -> tensor<f64>)",
       9},
      {"attention",
       {"2x3x3x2x4xf64", "2x3x3x4xf64", "2x3x3x5xf64", "2x3x3x2x5xf64"},
       {"2x3x3x2x5xf64", "2x3x3x2x4xf64", "2x3x3x4xf64", "2x3x3x5xf64"},
       R"(
        %y0, %lse = nn.attention %a, %b, %c scale = 0.5 causal
          : (tensor<2x3x3x2x4xf64>, tensor<2x3x3x4xf64>, tensor<2x3x3x5xf64>)
          -> (tensor<2x3x3x2x5xf64>, tensor<2x3x2x3xf64>)
        %y1, %y2, %y3 = nn.attention_grad %d, %a, %b, %c, %y0, %lse scale = 0.5 causal
          : (tensor<2x3x3x2x5xf64>, tensor<2x3x3x2x4xf64>, tensor<2x3x3x4xf64>, tensor<2x3x3x5xf64>, tensor<2x3x3x2x5xf64>, tensor<2x3x2x3xf64>)
          -> (tensor<2x3x3x2x4xf64>, tensor<2x3x3x4xf64>, tensor<2x3x3x5xf64>))"},
      {"attention_positions",
       {"2x5x1x2x4xf64", "2x3x1x4xf64", "2x3x1x4xf64", "2x5x1x2x4xf64"},
       {"2x5x1x2x4xf64", "2x5x1x2x4xf64", "2x3x1x4xf64", "2x3x1x4xf64"},
       R"(
        %qp = nn.iota dim = 0 : tensor<5xi64>
        %kp = nn.iota dim = 0 : tensor<3xi64>
        %y0, %lse = nn.attention %a, %b, %c positions(%qp, %kp) scale = 0.5 causal
          : (tensor<2x5x1x2x4xf64>, tensor<2x3x1x4xf64>, tensor<2x3x1x4xf64>, tensor<5xi64>, tensor<3xi64>)
          -> (tensor<2x5x1x2x4xf64>, tensor<2x1x2x5xf64>)
        %y1, %y2, %y3 = nn.attention_grad %d, %a, %b, %c, %y0, %lse positions(%qp, %kp) scale = 0.5 causal
          : (tensor<2x5x1x2x4xf64>, tensor<2x5x1x2x4xf64>, tensor<2x3x1x4xf64>, tensor<2x3x1x4xf64>, tensor<2x5x1x2x4xf64>, tensor<2x1x2x5xf64>, tensor<5xi64>, tensor<3xi64>)
          -> (tensor<2x5x1x2x4xf64>, tensor<2x3x1x4xf64>, tensor<2x3x1x4xf64>))"},
      {"attention_dropped",
       {"3x4x4x2x4xf64", "3x5x4x4xf64", "3x5x4x3xf64", "3x4x4x2x3xf64",
        "3x4x2xi64"},
       {"3x4x4x2x3xf64", "3x4x4x2x4xf64", "3x5x4x4xf64", "3x5x4x3xf64"},
       R"(
        %qi = nn.iota dim = 0 : tensor<4xi64>
        %ki = nn.iota dim = 0 : tensor<5xi64>
        %y0, %lse = nn.attention %a, %b, %c dropout(%e, %qi, %ki) p = 0.4 scale = 0.5
          : (tensor<3x4x4x2x4xf64>, tensor<3x5x4x4xf64>, tensor<3x5x4x3xf64>, tensor<3x4x2xi64>, tensor<4xi64>, tensor<5xi64>)
          -> (tensor<3x4x4x2x3xf64>, tensor<3x4x2x4xf64>)
        %y1, %y2, %y3 = nn.attention_grad %d, %a, %b, %c, %y0, %lse dropout(%e, %qi, %ki) p = 0.4 scale = 0.5
          : (tensor<3x4x4x2x3xf64>, tensor<3x4x4x2x4xf64>, tensor<3x5x4x4xf64>, tensor<3x5x4x3xf64>, tensor<3x4x4x2x3xf64>, tensor<3x4x2x4xf64>, tensor<3x4x2xi64>, tensor<4xi64>, tensor<5xi64>)
          -> (tensor<3x4x4x2x4xf64>, tensor<3x5x4x4xf64>, tensor<3x5x4x3xf64>))"},
      {"rotary",
       {"2x5x3x4xf64", "5x2xf64", "5x2xf64"},
       {"2x5x3x4xf64"},
       "%y0 = nn.rotary %a, %b, %c : tensor<2x5x3x4xf64>, tensor<5x2xf64>"},
      {"dropout", {"3x5x4xf64", "i64", "i64", "3xi64"}, {"3x5x4xf64"}, R"(
        %y0 = nn.dropout %a, %b, %c, %d p = 0.4 op_id = 3 global_shape = [3, 5, 4]
          : tensor<3x5x4xf64>, tensor<3xi64>)"},
      {"adamw",
       {"5x3xf64", "5x3xf64", "5x3xf64", "5x3xf64", "f64", "f64", "i64"},
       {"5x3xf64", "5x3xf64", "5x3xf64"},
       R"(
        %v = arith.mulf %c, %c : tensor<5x3xf64>
        %one = arith.constant dense<1> : tensor<i64>
        %step = arith.addi %g, %one : tensor<i64>
        %y0, %y1, %y2 = nn.adamw %a, %b, %v, %d, %e, %f, %step beta1 = 0.9 beta2 = 0.999 epsilon = 1.0e-8 weight_decay = 0.01
          : tensor<5x3xf64>, tensor<f64>)"},
      {"save", {"4x6xf64", "6x6xf64"}, {"4x6xf64"}, R"(
        %0 = nn.einsum "bh,hf->bf" %a, %b : tensor<4x6xf64>, tensor<6x6xf64> -> tensor<4x6xf64>
        %1 = nn.save %0 : tensor<4x6xf64>
        %2 = math.exp %0 : tensor<4x6xf64>
        %3 = nn.rematerialize %1 after %2 : tensor<4x6xf64>, tensor<4x6xf64>
        %y0 = arith.mulf %3, %2 : tensor<4x6xf64>)"},
      {"batched_einsum",
       {"3x4x5xf64", "3x5x2xf64"},
       {"3x4x2xf64", "4x2x3xf64"},
       R"(
        %y0 = nn.einsum "bij,bjk->bik" %a, %b : tensor<3x4x5xf64>, tensor<3x5x2xf64> -> tensor<3x4x2xf64>
        %y1 = nn.einsum "bij,bjk->ikb" %a, %b : tensor<3x4x5xf64>, tensor<3x5x2xf64> -> tensor<4x2x3xf64>)"},
      {"norm_of_parts", {"4x6xf64", "5xf64"}, {"f64", "4x6xf64"}, R"(
        %0 = arith.mulf %a, %a : tensor<4x6xf64>
        %1 = nn.reduce sum %0 dims = [0, 1] : tensor<4x6xf64> -> tensor<f64>
        %2 = arith.mulf %b, %b : tensor<5xf64>
        %3 = nn.reduce sum %2 dims = [0] : tensor<5xf64> -> tensor<f64>
        %4 = arith.addf %1, %3 : tensor<f64>
        %y0 = math.sqrt %4 : tensor<f64>
        %5 = nn.broadcast %y0 dims = [] : tensor<f64> -> tensor<4x6xf64>
        %y1 = arith.divf %a, %5 : tensor<4x6xf64>)"},
  };
}

using Random = std::mt19937_64;

int64_t draw(Random &random, int64_t below) { return random() % below; }

/// A random sharding text for a tensor of `rank` dimensions.
std::string randomSharding(Random &random, int64_t rank, bool mayBePartial,
                           ArrayRef<std::string> axes) {
  std::vector<std::vector<std::string>> dims(rank);
  std::vector<std::string> partial;
  std::vector<std::string> shuffled(axes.begin(), axes.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  for (const std::string &axis : shuffled) {
    int64_t place = draw(random, 2 * rank + 2);
    if (place < rank)
      dims[place].push_back(axis);
    else if (place == 2 * rank + 1 && mayBePartial)
      partial.push_back(axis);
  }
  std::string text = "#dist.sharding<@m, [";
  for (int64_t dim = 0; dim < rank; ++dim) {
    text += dim ? ", {" : "{";
    for (size_t i = 0; i < dims[dim].size(); ++i)
      text += (i ? ", " : "") + dims[dim][i];
    if (draw(random, 3) == 0)
      text += dims[dim].empty() ? "?" : ", ?";
    text += "}";
  }
  text += "]";
  if (!partial.empty()) {
    text += ", partial = sum{";
    for (size_t i = 0; i < partial.size(); ++i)
      text += (i ? ", " : "") + partial[i];
    text += "}";
  }
  return text + ">";
}

struct MeshCase {
  const char *mesh;
  std::vector<std::string> axes;
};

std::vector<MeshCase> meshes() {
  return {{"\"x\"=2", {"\"x\""}},
          {"\"x\"=3", {"\"x\""}},
          {"\"x\"=4", {"\"x\":(1)2", "\"x\":(2)2"}},
          {"\"x\"=2, \"y\"=3", {"\"x\"", "\"y\""}},
          {"\"x\"=2, \"y\"=2, \"z\"=2", {"\"x\"", "\"y\"", "\"z\""}}};
}

Tensor randomTensor(Random &random, RankedTensorType type, int64_t limit) {
  Tensor tensor(type);
  for (double &value : tensor.floats)
    value = double(draw(random, 2001) - 1000) / 500;
  for (int64_t &value : tensor.ints)
    value = draw(random, limit);
  return tensor;
}

class RandomSharding : public testing::TestWithParam<size_t> {};

std::string program(const Case &c, const MeshCase &mesh, Random &random) {
  std::string text =
      std::string("dist.mesh @m <[") + mesh.mesh + "]>\nfunc.func @f(";
  auto rankOf = [](StringRef type) { return int64_t(type.count('x')); };
  for (size_t i = 0; i < c.arguments.size(); ++i) {
    StringRef type = c.arguments[i];
    bool isFloat = type.ends_with("f64");
    text += (i ? ", %" : "%") + std::string(1, 'a' + i) + ": tensor<" +
            type.str() + ">";
    if (draw(random, 4) != 0)
      text += " {dist.sharding = " +
              randomSharding(random, rankOf(type), isFloat, mesh.axes) + "}";
  }
  text += ") -> (";
  for (size_t i = 0; i < c.results.size(); ++i) {
    StringRef type = c.results[i];
    bool isFloat = type.ends_with("f64");
    text += (i ? ", tensor<" : "tensor<") + type.str() + ">";
    if (draw(random, 2) != 0)
      text += " {dist.sharding = " +
              randomSharding(random, rankOf(type), isFloat, mesh.axes) + "}";
  }
  text += std::string(") {\n") + c.body + "\n        return ";
  for (size_t i = 0; i < c.results.size(); ++i)
    text += (i ? ", %y" : "%y") + std::to_string(i);
  text += " : ";
  for (size_t i = 0; i < c.results.size(); ++i)
    text += (i ? ", tensor<" : "tensor<") + std::string(c.results[i]) + ">";
  return text + "\n}\n";
}

TEST_P(RandomSharding, AgreesWithOneDevice) {
  Case c = cases()[GetParam()];
  TestContext test;
  MLIRContext &context = test.context;
  std::string &diagnostics = test.diagnostics;

  int64_t count = 40;
  if (const char *more = std::getenv("CLEAVE_RANDOM_SHARDINGS"))
    count = std::atoll(more);
  Random random(1234 + GetParam());
  for (int64_t trial = 0; trial < count; ++trial) {
    MeshCase mesh = meshes()[trial % meshes().size()];
    std::string text = program(c, mesh, random);
    SCOPED_TRACE(text);
    diagnostics.clear();
    OwningOpRef<ModuleOp> global = parseSourceString<ModuleOp>(text, &context);
    ASSERT_TRUE(global) << diagnostics;
    func::FuncOp whole = *global->getOps<func::FuncOp>().begin();
    std::vector<Tensor> arguments;
    for (Type type : whole.getArgumentTypes())
      arguments.push_back(
          randomTensor(random, cast<RankedTensorType>(type), c.limit));
    FailureOr<std::vector<Tensor>> expected = interpret(whole, arguments);
    ASSERT_TRUE(succeeded(expected)) << diagnostics;

    OwningOpRef<ModuleOp> local = global->clone();
    PassManager passes(&context);
    buildPartitionPipeline(passes);
    ASSERT_TRUE(succeeded(passes.run(*local))) << diagnostics;
    func::FuncOp part = *local->getOps<func::FuncOp>().begin();
    MeshAttr meshAttr = (*local->getOps<MeshOp>().begin()).getMesh();
    std::vector<RankTensors> tiles;
    for (unsigned i = 0; i < arguments.size(); ++i)
      tiles.push_back(shardTensor(arguments[i], meshAttr,
                                  partition::Port{part, false, i}.sharding()));
    auto actual = interpretRanks(part, meshAttr, tiles);
    ASSERT_TRUE(succeeded(actual)) << diagnostics;
    std::string printed;
    llvm::raw_string_ostream(printed) << *local;
    SCOPED_TRACE(printed);
    for (unsigned i = 0; i < expected->size(); ++i) {
      const Tensor &want = (*expected)[i];
      Assembled got = assembleTensor((*actual)[i], want.type, meshAttr,
                                     partition::Port{part, true, i}.sharding());
      EXPECT_EQ(got.replicaDifference, 0) << "result " << i;
      for (int64_t at = 0; at < want.size(); ++at) {
        if (!want.isFloat()) {
          ASSERT_EQ(got.whole.ints[at], want.ints[at])
              << "result " << i << " at " << at;
          continue;
        }
        double a = got.whole.floats[at], b = want.floats[at];
        ASSERT_TRUE(std::abs(a - b) <= 1e-10 * std::max(1.0, std::abs(b)))
            << "result " << i << " at " << at << ": " << a << ", expected "
            << b;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, RandomSharding,
                         testing::Range<size_t>(0, cases().size()),
                         [](const testing::TestParamInfo<size_t> &info) {
                           return std::string(cases()[info.param].name);
                         });

} // namespace
