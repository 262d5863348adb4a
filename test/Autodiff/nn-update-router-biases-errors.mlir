// RUN: cleave-opt %s "--nn-update-router-biases=rate=0.5" -split-input-file -verify-diagnostics

// expected-error @below {{counts a router's choices without its bias 'b': cut the router and its experts into one stage (parallel.pipeline.stages)}}
func.func @loss_grad(%ids: tensor<4xi64> {nn.name = "ids", nn.role = #nn.role<input>})
    -> (tensor<4xi64> {nn.name = "gate.chosen", nn.role = #nn.role<accumulator>, nn.router = #nn.router<name = "gate", counts = chosen, bias = "b">}) {
  return %ids : tensor<4xi64>
}
func.func @update(%f: tensor<f32> {nn.name = "f", nn.role = #nn.role<loss>}) -> (tensor<f32> {nn.name = "finite", nn.role = #nn.role<metric>}) {
  return %f : tensor<f32>
}
