// RUN: cleave-opt %s --nn-mixed-precision --verify-diagnostics

func.func @loop(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // expected-error @below {{'scf.for' op is not yet supported in bf16: loops and branches compute in f32 alone (train.precision = "fp32")}}
  %0 = scf.for %i = %c0 to %c4 step %c1 iter_args(%sum = %w) -> tensor<3xf32> {
    %1 = arith.addf %sum, %w : tensor<3xf32>
    scf.yield %1 : tensor<3xf32>
  }
  return %0 : tensor<3xf32>
}
