// Passes from tensor operations to commands.

#ifndef CLEAVE_CONVERSION_TORT_PASSES_TD
#define CLEAVE_CONVERSION_TORT_PASSES_TD

include "mlir/Pass/PassBase.td"

def OutlineScansPass : Pass<"nn-outline-scans", "::mlir::ModuleOp"> {
  let summary = "Turn loops into commands that run a function several times";
  let description = [{
    The first pass of the kernel phase. The region of each `nn.scan` becomes a function with
    `rt.body`, whose operations become commands like those of an action. The scan becomes an
    `rt.repeat`, which runs this function. A carried value becomes a pair of buffers that the trips
    read and write in turn.

    Before:
    ```mlir
    func.func @f(%h0: tensor<3xf32>, %xs: tensor<5x3xf32>) -> tensor<3xf32> {
      %0 = nn.scan trips = 5 carries(%h = %h0 : tensor<3xf32>) slices(%x = %xs : tensor<5x3xf32>) -> tensor<3xf32> {
        %1 = arith.addf %h, %x : tensor<3xf32>
        nn.yield %1 : tensor<3xf32>
      }
      return %0 : tensor<3xf32>
    }
    ```

    After:
    ```mlir
    func.func @f(%h0: tensor<3xf32>, %xs: tensor<5x3xf32>) -> tensor<3xf32> {
      %0 = rt.copy %h0 [0, 1] to [3, 1] shape = [3] : (tensor<3xf32>) -> tensor<2x3xf32>
      %1 = rt.repeat @f.trip trips = 5 pairs(%0) slices(%xs) : (tensor<2x3xf32>, tensor<5x3xf32>) -> tensor<2x3xf32>
      %2 = rt.alias %1 offset = 0 : (tensor<2x3xf32>) -> tensor<3xf32>
      return %2 : tensor<3xf32>
    }
    func.func private @f.trip(%h: tensor<3xf32> {nn.name = "0", nn.role = #nn.role<input>},
                              %x: tensor<3xf32> {nn.name = "1", nn.role = #nn.role<input>})
        -> (tensor<3xf32> {nn.name = "0", nn.role = #nn.role<output>}) attributes {rt.body} {
      %0 = arith.addf %h, %x : tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::rt::RTDialect"];
}

def SelectLibraryPass : Pass<"nn-select-library", "::mlir::ModuleOp"> {
  let summary = "Convert contractions and attention to library calls";
  let description = [{
    Runs on per-rank programs, before the other operations are fused into kernels.
    `nn.einsum` becomes `rt.gemm`: each label is a batch, m, n or k dimension, adjacent
    labels merge if their strides allow this, and the operands are ordered so that the
    result's innermost label is an n dimension. Transposes, slices and reshapes of
    operands become strides; an operand is copied only if the contracted labels cannot be
    put into the same order for both operands. An `nn.einsum` without a contracted label
    becomes elementwise operations. A bias along the last dimensions and a following gelu,
    relu or silu are fused into the product (which also stores the pre-activation if the
    backward pass reads it), and so are sums of products and the addition to a gradient
    accumulator. `nn.attention` and its gradient become library calls on strided views, so
    that query, key and value may be slices of one projection, and their gradients slices
    of one buffer. Convolutions and their gradients become slices and products.

    With `device=cuda`, additionally:

    - Convolutions for which the runtime has a command become `rt.conv`. The command computes in
      bf16 if the operands are widened bf16 values and the result is rounded to bf16.
    - A batch of many products of a vector with a matrix (such as those that combine the experts'
      results of each token) becomes elementwise operations and sums.
    - A bias in bf16 is fused into the product, which is then rounded once, after the addition. The
      derivative of gelu (tanh) is fused into the product in any type.
    - The gradient of a bias is fused into the product for the weight gradient, if both read the
      same cotangent in the same type.

    `dist.keep_first` becomes elementwise operations. Kernels and collectives do not change.

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
  let summary = "Pad the classes of logits so that rows are aligned for device libraries";
  let description = [{
    Runs on per-rank programs for CUDA devices, before library calls are selected. For example, with
    a vocabulary of 50257, the rows of bf16 logits begin at arbitrary even addresses. Matrix
    products that read or write unaligned rows are slow, and so are kernels, which load unaligned
    rows one element at a time.

    The product that computes the logits gets zeros for additional classes, so that the
    bytes of a row are a multiple of 16. `nn.cross_entropy` and its gradient read minus
    infinity for the additional classes, so that the probability of these classes is
    exactly 0, and so is their cotangent. Products that read the cotangent of the logits
    then read the padded cotangent: if the product sums over the classes, its other
    operand gets zeros for the additional classes; otherwise the result has additional
    rows of zeros, which are sliced off. A label that is not a class is still not a class
    after padding.

    The pass only pads if all readers of the logits are losses, all readers of the cotangent are
    products, and there are 128 classes or more.

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
  let summary = "Convert host functions to command lists";
  let description = [{
    Runs after kernel fusion. A host function (any function that is not a kernel) then consists of
    kernel calls, library calls, collectives, constants and data movement. Kernel calls become
    `rt.launch`, collectives `rt.collective`, constants `rt.fill`; reshapes and contiguous slices
    become `rt.alias`, other slices, transposes and `dist.slice` of an inner dimension `rt.copy`.
    `nn.save` and `nn.rematerialize` are no longer needed and are removed. All other operations are
    errors.

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
