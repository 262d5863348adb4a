// RUN: cleave-opt %s -nn-roll-experts -verify-diagnostics

func.func @missing_expert(%w: tensor<5x7xf32> {nn.name = "w", nn.role = "parameter"}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = "parameter"},
                          %x: tensor<3x5xf32>, %scores: tensor<3x4xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %two = arith.constant dense<2> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %id = nn.argmax %scores dim = 1 : tensor<3x4xf32> -> tensor<3xi64>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = arith.select %1, %2, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %4 = arith.cmpi eq, %id, %two : tensor<3xi64>
  %5 = nn.broadcast %4 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %6 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %7 = arith.select %5, %6, %none : tensor<3x7xi1>, tensor<3x7xf32>
  // expected-error @below {{adds up 2 of the 4 experts among which its router chooses; missing: 1, 3; tracing leaves out the experts that the sample did not choose: export the model with a loop over all experts}}
  %8 = arith.addf %3, %7 : tensor<3x7xf32>
  return %8 : tensor<3x7xf32>
}
