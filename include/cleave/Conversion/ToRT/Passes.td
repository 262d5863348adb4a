// Passes from tensor operations to commands.

#ifndef CLEAVE_CONVERSION_TORT_PASSES_TD
#define CLEAVE_CONVERSION_TORT_PASSES_TD

include "mlir/Pass/PassBase.td"

def SelectLibraryPass : Pass<"nn-select-library", "::mlir::ModuleOp"> {
  let summary = "Turn contractions and attention into library calls";
  let description = [{
    Runs on local programs, before kernels are formed from what is left.
    `nn.einsum` becomes `rt.gemm`: labels are batch, m, n or k, neighbours merge
    where their strides allow it, and the operands are ordered so that the result's
    innermost label is n. Transposes, slices and reshapes of operands become
    strides; a copy is made only of an operand whose contracted labels have no
    common order. Products without a contraction become elementwise work. A bias
    along the last dimensions and a following gelu, relu or silu join the
    product (which keeps the pre-activation where the backward pass reads it), as
    do sums of products and the addition to an accumulator of gradients.
    `nn.attention` and its derivative become library calls on strided views, so
    that query, key and value may be slices of one projection, and their gradients
    pieces of one buffer. Convolutions and their derivatives become slices and products;
    with `device=cuda`, those that the runtime has a command for become `rt.conv`,
    in bf16 where the operands are bf16 that is widened and the result is rounded;
    many products of a vector with a matrix each (what tokens take of their
    experts) become elementwise work and sums; a bias in bf16 joins the product,
    which is rounded after it and not before as well, as does the derivative of gelu
    (tanh) in any type; and the gradient of a bias joins the product for the gradient
    of the weights, where both are of one cotangent and one type.
    `dist.keep_first` becomes elementwise work. Kernels and
    collectives are left alone.

    Before:
    ```mlir
    func.func @f(%x: tensor<4x5xf32>, %w: tensor<6x5xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
      %0 = nn.einsum "mk,nk->mn" %x, %w : tensor<4x5xf32>, tensor<6x5xf32> -> tensor<4x6xf32>
      %1 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<4x6xf32>
      %2 = arith.addf %0, %1 : tensor<4x6xf32>
      return %2 : tensor<4x6xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<4x5xf32>, %w: tensor<6x5xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
      %0 = rt.gemm a(%x [0, 5, 1]) b(%w [0, 1, 5]) bias(%b) c [0, 6, 1] m = 4 n = 6 k = 5
        : (tensor<4x5xf32>, tensor<6x5xf32>, tensor<6xf32>) -> tensor<4x6xf32>
      return %0 : tensor<4x6xf32>
    }
    ```
  }];
  let options = [
    Option<"device", "device", "::cleave::program::Device", "::cleave::program::Device::Cpu",
           "What runs the calls", [{::llvm::cl::values(
             clEnumValN(::cleave::program::Device::Cpu, "cpu", "The host's library"),
             clEnumValN(::cleave::program::Device::Cuda, "cuda", "NVIDIA's libraries"))}]>,
  ];
  let dependentDialects = ["::cleave::nn::NNDialect", "::cleave::rt::RTDialect", "::cleave::dist::DistDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def PadClassesPass : Pass<"nn-pad-classes", "::mlir::ModuleOp"> {
  let summary = "Let rows of logits begin where libraries for devices want them";
  let description = [{
    Runs on local programs for CUDA devices, before library calls are selected.
    A vocabulary of 50257 gives logits in bf16 whose rows begin at any even
    address, and products that read or write such rows are slow, as are kernels
    that load one element at a time.

    The product that gives logits gets zeros for more classes, so that a row has a
    multiple of 16 bytes. `nn.cross_entropy` and its derivative read minus infinity
    there: the probability of such a class is exactly 0, and so is its cotangent.
    Products that read the cotangent take it as it is, with a matrix of zeros for
    those classes, or give rows of zeros that are cut off. A label that is no class stays none.

    It is done where nothing but losses reads the logits and nothing but products the
    cotangent, and with 128 classes or more.

    Before:
    ```mlir
    func.func @f(%x: tensor<4x8xbf16>, %w: tensor<129x8xbf16>, %labels: tensor<4xi64>) -> tensor<4xf32> {
      %0 = nn.einsum "bh,ch->bc" %x, %w : tensor<4x8xbf16>, tensor<129x8xbf16> -> tensor<4x129xbf16>
      %1 = arith.extf %0 : tensor<4x129xbf16> to tensor<4x129xf32>
      %loss, %lse = nn.cross_entropy %1, %labels ignore_index = -100
        : (tensor<4x129xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
      return %loss : tensor<4xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%x: tensor<4x8xbf16>, %w: tensor<129x8xbf16>, %labels: tensor<4xi64>) -> tensor<4xf32> {
      %0 = nn.pad %w low = [0, 0] high = [7, 0] value = 0.0 : tensor<129x8xbf16> -> tensor<136x8xbf16>
      %1 = nn.einsum "bh,ch->bc" %x, %0 : tensor<4x8xbf16>, tensor<136x8xbf16> -> tensor<4x136xbf16>
      %2 = arith.extf %1 : tensor<4x136xbf16> to tensor<4x136xf32>
      %3 = nn.slice %2 [0, 0] [4, 129] [1, 1] : tensor<4x136xf32> -> tensor<4x129xf32>
      %4 = nn.pad %3 low = [0, 0] high = [0, 7] value = 0xFFF0000000000000 : tensor<4x129xf32> -> tensor<4x136xf32>
      %n = arith.constant dense<129> : tensor<4xi64>
      %5 = arith.cmpi ult, %labels, %n : tensor<4xi64>
      %none = arith.constant dense<136> : tensor<4xi64>
      %6 = arith.select %5, %labels, %none : tensor<4xi1>, tensor<4xi64>
      %loss, %lse = nn.cross_entropy %4, %6 ignore_index = -100
        : (tensor<4x136xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>)
      return %loss : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::nn::NNDialect", "::mlir::arith::ArithDialect"];
}

def HostToRTPass : Pass<"nn-host-to-rt", "::mlir::ModuleOp"> {
  let summary = "Turn host functions into command lists";
  let description = [{
    Runs after kernels are formed. A host function (any but kernels) then holds
    calls of kernels, library calls, collectives, constants and placements. Calls
    become `rt.launch`, collectives `rt.collective`, constants `rt.fill`;
    reshapes and contiguous slices become `rt.alias`, other slices, transposes
    and `dist.slice` of an inner dimension `rt.copy`. `nn.save` and `nn.rematerialize`
    have done their work and go. Anything else is an error.

    Before:
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func private @kernel_0(%x: tensor<6xf32>) -> tensor<6xf32>
      attributes {nn.kernel, nn.extent = 6 : i64, nn.grain = 1 : i64, nn.inplace = array<i64: 0, 0>}
    func.func @f(%x: tensor<6xf32>) -> tensor<6xf32> {
      %0 = func.call @kernel_0(%x) : (tensor<6xf32>) -> tensor<6xf32>
      %1 = dist.all_reduce sum %0 over @m {"x"} purpose gradient : tensor<6xf32>
      return %1 : tensor<6xf32>
    }
    ```

    After:
    ```mlir
    func.func private @kernel_0(%x: tensor<6xf32>) -> tensor<6xf32>
      attributes {nn.kernel, nn.extent = 6 : i64, nn.grain = 1 : i64, nn.inplace = array<i64: 0, 0>}
    func.func @f(%x: tensor<6xf32>) -> tensor<6xf32> {
      %0 = rt.launch @kernel_0(%x) extent = 6 grain = 1 inplace = [0, 0] : (tensor<6xf32>) -> tensor<6xf32>
      %1 = rt.collective all_reduce(%0) group = [0, 1, 2] layout = [1, 6, 1, 6] purpose = "gradient"
        : (tensor<6xf32>) -> tensor<6xf32>
      return %1 : tensor<6xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::rt::RTDialect"];
}

#endif
