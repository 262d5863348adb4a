// RUN: cleave-opt %s --dist-propagate --verify-diagnostics

dist.mesh @mesh <["data"=2]>

func.func @constrained_body(%xs: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %0 = nn.scan trips = 5 slices(%x = %xs : tensor<5x4xf32>) -> tensor<5x4xf32> {
    // expected-error @below {{'dist.constrain' op stands in the region of 'nn.scan', whose values take their shardings from the operands and the results; expected it on one of these}}
    %1 = dist.constrain %x <@mesh, [{"data"}]> : tensor<4xf32>
    nn.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<5x4xf32>
}
