// Loops whose derivatives are compared with central differences.

#include "DerivativeCase.h"

static std::vector<cleave::Case> recurrentCases() {
  return {
      // A recurrent layer: a [iterations, samples, features] is the input, b
      // the initial hidden state, c the recurrent matrix, d a bias.
      {"scan_recurrent", {"4x2x3", "2x3", "3x3", "3"}, "4x2x3", R"(
        %last, %y = nn.scan trips = 4 carries(%h = %b : tensor<2x3xf64>) slices(%x = %a : tensor<4x2x3xf64>)
            captures(%u = %c : tensor<3x3xf64>, %bias = %d : tensor<3xf64>) -> tensor<2x3xf64>, tensor<4x2x3xf64> {
          %0 = nn.einsum "bh,hk->bk" %h, %u : tensor<2x3xf64>, tensor<3x3xf64> -> tensor<2x3xf64>
          %1 = nn.broadcast %bias dims = [1] : tensor<3xf64> -> tensor<2x3xf64>
          %2 = arith.addf %0, %x : tensor<2x3xf64>
          %3 = arith.addf %2, %1 : tensor<2x3xf64>
          %4 = math.tanh %3 : tensor<2x3xf64>
          nn.yield %4, %4 : tensor<2x3xf64>, tensor<2x3xf64>
        })"},
      // A recurrent layer without a bias that reads the input slices in reverse
      // order. The result is only the last hidden state.
      {"scan_reverse", {"4x2x3", "2x3", "3x3"}, "2x3", R"(
        %y = nn.scan trips = 4 reverse carries(%h = %b : tensor<2x3xf64>) slices(%x = %a : tensor<4x2x3xf64>)
            captures(%u = %c : tensor<3x3xf64>) -> tensor<2x3xf64> {
          %0 = nn.einsum "bh,hk->bk" %h, %u : tensor<2x3xf64>, tensor<3x3xf64> -> tensor<2x3xf64>
          %1 = arith.addf %0, %x : tensor<2x3xf64>
          %2 = math.tanh %1 : tensor<2x3xf64>
          nn.yield %2 : tensor<2x3xf64>
        })"},
      // A captured operand whose cotangent is summed inside of the loop, and
      // one that a product transposes and reshapes.
      {"scan_captures", {"3x4", "4", "2x6"}, "3x4", R"(
        %zero = arith.constant dense<0.0> : tensor<4xf64>
        %last, %y = nn.scan trips = 3 carries(%h = %zero : tensor<4xf64>) slices(%x = %a : tensor<3x4xf64>)
            captures(%u = %b : tensor<4xf64>, %v = %c : tensor<2x6xf64>) -> tensor<4xf64>, tensor<3x4xf64> {
          %half = arith.constant dense<0.5> : tensor<4xf64>
          %0 = arith.mulf %h, %u : tensor<4xf64>
          %1 = nn.reshape %v : tensor<2x6xf64> -> tensor<3x4xf64>
          %2 = nn.transpose %1 [1, 0] : tensor<3x4xf64> -> tensor<4x3xf64>
          %3 = nn.slice %2 [0, 0] [4, 2] [1, 2] : tensor<4x3xf64> -> tensor<4x2xf64>
          %4 = nn.einsum "i,ij->j" %x, %3 : tensor<4xf64>, tensor<4x2xf64> -> tensor<2xf64>
          %5 = nn.concat %4, %4 dim = 0 : tensor<2xf64>, tensor<2xf64> -> tensor<4xf64>
          %6 = arith.mulf %5, %half : tensor<4xf64>
          %7 = arith.addf %0, %6 : tensor<4xf64>
          nn.yield %7, %7 : tensor<4xf64>, tensor<4xf64>
        })"},
  };
}

static std::vector<cleave::Case> otherCases() {
  return {
      // Three carried values. One depends on a parameter only from the second
      // iteration on, and one is an integer that counts the iterations.
      {"scan_carries", {"3x2", "2"}, "2", R"(
        %zero = arith.constant dense<0.0> : tensor<2xf64>
        %number = arith.constant dense<1> : tensor<i64>
        %c0, %y, %n = nn.scan trips = 3
            carries(%s = %zero : tensor<2xf64>, %p = %b : tensor<2xf64>, %i = %number : tensor<i64>)
            slices(%x = %a : tensor<3x2xf64>) -> tensor<2xf64>, tensor<2xf64>, tensor<i64> {
          %one = arith.constant dense<1> : tensor<i64>
          %next = arith.addi %i, %one : tensor<i64>
          %f = arith.sitofp %i : tensor<i64> to tensor<f64>
          %all = nn.broadcast %f dims = [] : tensor<f64> -> tensor<2xf64>
          %0 = arith.mulf %x, %p : tensor<2xf64>
          %1 = arith.addf %s, %0 : tensor<2xf64>
          %2 = math.sin %1 : tensor<2xf64>
          %3 = arith.mulf %2, %all : tensor<2xf64>
          nn.yield %1, %3, %next : tensor<2xf64>, tensor<2xf64>, tensor<i64>
        })"},
      // Sliced weights and biases: their cotangents are computed after the
      // loop, through a transpose and a reshape.
      {"scan_layers", {"3x2x3", "2x2", "3x6", "2"}, "2x2", R"(
        %y = nn.scan trips = 3 reverse carries(%h = %b : tensor<2x2xf64>)
            slices(%row = %a : tensor<3x2x3xf64>, %flat = %c : tensor<3x6xf64>)
            captures(%v = %d : tensor<2xf64>) -> tensor<2x2xf64> {
          %m = nn.reshape %flat : tensor<6xf64> -> tensor<3x2xf64>
          %t = nn.transpose %row [1, 0] : tensor<2x3xf64> -> tensor<3x2xf64>
          %0 = nn.einsum "bi,ki->bk" %h, %t : tensor<2x2xf64>, tensor<3x2xf64> -> tensor<2x3xf64>
          %1 = math.sin %0 : tensor<2x3xf64>
          %2 = nn.einsum "bk,ki->bi" %1, %m : tensor<2x3xf64>, tensor<3x2xf64> -> tensor<2x2xf64>
          %3 = nn.slice %m [0, 0] [1, 2] [1, 1] : tensor<3x2xf64> -> tensor<1x2xf64>
          %4 = nn.reshape %3 : tensor<1x2xf64> -> tensor<2xf64>
          %5 = arith.mulf %4, %v : tensor<2xf64>
          %6 = nn.broadcast %5 dims = [1] : tensor<2xf64> -> tensor<2x2xf64>
          %7 = arith.addf %2, %6 : tensor<2x2xf64>
          nn.yield %7 : tensor<2x2xf64>
        })"},
      // A loop inside of a loop.
      {"scan_nested", {"2x3x2", "2", "2"}, "2x2", R"(
        %last, %y = nn.scan trips = 2 carries(%h = %b : tensor<2xf64>) slices(%rows = %a : tensor<2x3x2xf64>)
            captures(%u = %c : tensor<2xf64>) -> tensor<2xf64>, tensor<2x2xf64> {
          %0 = nn.scan trips = 3 carries(%g = %h : tensor<2xf64>) slices(%x = %rows : tensor<3x2xf64>)
              captures(%v = %u : tensor<2xf64>) -> tensor<2xf64> {
            %1 = arith.mulf %g, %v : tensor<2xf64>
            %2 = arith.addf %1, %x : tensor<2xf64>
            %3 = math.tanh %2 : tensor<2xf64>
            nn.yield %3 : tensor<2xf64>
          }
          nn.yield %0, %0 : tensor<2xf64>, tensor<2xf64>
        })"},
  };
}

std::vector<cleave::Case> cleave::loopCases() {
  std::vector<Case> cases = recurrentCases();
  for (Case &each : otherCases())
    cases.push_back(std::move(each));
  return cases;
}
