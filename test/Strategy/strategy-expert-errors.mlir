// RUN: cleave-opt %s -split-input-file --strategy-expert="axis=x required" -verify-diagnostics

dist.mesh @mesh <["x"=3]>
func.func @forward(%x: tensor<3x6xf32>, %ids: tensor<3xi64>,
    // expected-error @below {{parameter 'w' has 2 experts, fewer than the 3 ranks of axis 'x'; take at most 2}}
    %w: tensor<2x6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<3x8xf32> {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<3x6xf32>, tensor<2x6x8xf32>, tensor<3xi64> -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// -----

dist.mesh @mesh <["x"=2]>
func.func @forward(%x: tensor<3x6xf32>, %ids: tensor<3xi64>,
    // expected-error @below {{parameter 'w' of 4 experts is read as a whole, so axis 'x' cannot split it}}
    %w: tensor<4x6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> (tensor<3x8xf32>, tensor<3x6x8xf32>) {
  %0 = nn.grouped_dot %x, %w, %ids : tensor<3x6xf32>, tensor<4x6x8xf32>, tensor<3xi64> -> tensor<3x8xf32>
  %1 = nn.slice %w [1, 0, 0] [3, 6, 8] [1, 1, 1] : tensor<4x6x8xf32> -> tensor<3x6x8xf32>
  return %0, %1 : tensor<3x8xf32>, tensor<3x6x8xf32>
}

// -----

// expected-error @below {{has no experts to split over axis 'x': no parameter is read by nn.grouped_dot}}
module {
  dist.mesh @mesh <["x"=2]>
  func.func @forward(%x: tensor<3x6xf32>, %w: tensor<6x8xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> tensor<3x8xf32> {
    %0 = nn.einsum "bh,hf->bf" %x, %w : tensor<3x6xf32>, tensor<6x8xf32> -> tensor<3x8xf32>
    return %0 : tensor<3x8xf32>
  }
}
