// RUN: cleave-opt %s --strategy-shard -verify-diagnostics -o /dev/null
// RUN: cleave-opt %s --strategy-tensor=axis=tensor --strategy-shard -verify-diagnostics -o /dev/null

// The padding remark is about the requested sharding, not about the one that tensor
// parallelism would choose.
module attributes {nn.shard = [
    #nn.shard<match = "w", dims = [#dist.axes<{"tensor":(2)2}>, #dist.axes<{"data", "tensor":(1)2}>]>]} {
  dist.mesh @mesh <["data"=3, "tensor"=4]>
  // expected-remark @below {{parameter 'w' of type 'tensor<97x36xf32>': dimension 0 does not divide by the 2 ranks of axis 'tensor:(2)2', it is padded to 98}}
  func.func @forward(%x: tensor<6x97xf32> {nn.name = "x", nn.role = #nn.role<input>},
                     %w: tensor<97x36xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) -> (tensor<6x36xf32> {nn.role = #nn.role<output>}) {
    %0 = nn.einsum "bi,io->bo" %x, %w : tensor<6x97xf32>, tensor<97x36xf32> -> tensor<6x36xf32>
    return %0 : tensor<6x36xf32>
  }
}
