#include "RandomShardingCases.h"

using namespace cleave::test;

namespace {

std::vector<ShardingCase> elementwiseCases() {
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
  };
}

/// Programs that only change shardings.
std::vector<ShardingCase> reshardCases() {
  return {
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
  };
}

/// Programs with contractions, partial sums and reductions.
std::vector<ShardingCase> contractionCases() {
  return {
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
  };
}

/// Programs that move elements: reshape, transpose, slice, concat, pad.
std::vector<ShardingCase> shapeCases() {
  return {
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
  };
}

/// Loops and branches.
std::vector<ShardingCase> regionCases() {
  return {
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
  };
}

std::vector<ShardingCase> convolutionCases() {
  return {
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
  };
}

std::vector<ShardingCase> poolingCases() {
  return {
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
  };
}

/// Programs that select elements by an index, or compute such an index.
std::vector<ShardingCase> indexingCases() {
  return {
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
  };
}

/// Programs with argmax, softmax, norms and losses, all along rows.
std::vector<ShardingCase> rowCases() {
  return {
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
  };
}

std::vector<ShardingCase> attentionCases() {
  return {
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
  };
}

/// Programs with the operations that a training step adds: dropout, the
/// optimizer, saved values, batched contractions and the gradient norm.
std::vector<ShardingCase> trainingCases() {
  return {
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

} // namespace

std::vector<ShardingCase> cleave::test::shardingCases() {
  std::vector<ShardingCase> all;
  for (auto *family : {elementwiseCases, reshardCases, contractionCases,
                       shapeCases, regionCases, convolutionCases, poolingCases,
                       indexingCases, rowCases, attentionCases, trainingCases})
    for (ShardingCase &c : family())
      all.push_back(std::move(c));
  return all;
}
