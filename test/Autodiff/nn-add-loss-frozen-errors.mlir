// RUN: not cleave-opt %s "--nn-add-loss=frozen=head" 2>&1 | FileCheck %s --check-prefix=TIED
// RUN: not cleave-opt %s "--nn-add-loss=frozen=w.*,head,b.wight" 2>&1 | FileCheck %s --check-prefix=NEAR
// RUN: not cleave-opt %s "--nn-add-loss=trainable=zzz" 2>&1 | FileCheck %s --check-prefix=FAR
// RUN: not cleave-opt %s "--nn-add-loss=trainable=w.*,b.*" 2>&1 | FileCheck %s --check-prefix=HALF
// RUN: cleave-opt %s "--nn-add-loss=frozen=w.*,head" 2>&1 | FileCheck %s --check-prefix=USED

// TIED: error: train.frozen names 'head' and not 'wte', which are tied: one parameter under two names; name both, or neither
// NEAR: error: pattern 'b.wight' of train.frozen matches none of the 2 parameters: 'wte', 'b.weight'; patterns match whole names; the nearest is 'b.weight'
// FAR: error: pattern 'zzz' of train.trainable matches none of the 2 parameters: 'wte', 'b.weight'; patterns match whole names{{$}}
// HALF: error: train.trainable names 'wte' and not 'head', which are tied
// USED-NOT: error
// USED: nn.frozen, nn.name = "wte"
func.func @forward(
    %w: tensor<2x3xf32> {nn.name = "wte", nn.role = #nn.role<parameter>, nn.tied = [#nn.tied<name = "head", transposed = true>]},
    %b: tensor<2x3xf32> {nn.name = "b.weight", nn.role = #nn.role<parameter>})
    -> (tensor<2x3xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = arith.addf %w, %b : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
