//===- OverlapPasses.td - overlap of communication and compute ----*- tablegen -*-===//

#ifndef CLEAVE_PARTITION_OVERLAPPASSES_TD
#define CLEAVE_PARTITION_OVERLAPPASSES_TD

include "mlir/Pass/PassBase.td"

def DistChunkProductsPass : Pass<"dist-chunk-products", "::mlir::ModuleOp"> {
  let summary = "Decompose exposed collectives and their products into chunks that overlap";
  let description = [{
    Runs on per-rank programs. The pass decomposes an exposed collective and the matrix products next to
    it into chunks. The collective is an all-gather whose result only products read, or a reduction of
    the result of a product. The chunks are taken along a dimension that neither the collective nor the
    products combine (usually the samples). While one chunk is computed, the next chunk is gathered, or
    the previous chunk is reduced (Wang et al., "Overlap Communication with Dependent Computation via
    Decomposition in Large Deep Learning Models", ASPLOS 2023, for rings). A collective is not exposed,
    and so not decomposed, if earlier products take as long as the collective and no other product needs
    their results, as is the case for weight gradients (see `rt-overlap`).

    The pass uses two or four chunks if three conditions hold: according to the cost model (which reads
    the file `cluster`), this saves at least a tenth of the collective's time; the collectives of all
    chunks together take at most 1.5 times as long as the original collective; and chunks are contiguous
    in memory.

    Before:
    ```mlir
    dist.mesh @m <["t"=2]>
    func.func @f(%x: tensor<2x1024x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<2x1024x1024xf32> {
      %0 = nn.einsum "bsh,hf->bsf" %x, %w : tensor<2x1024x1024xf32>, tensor<1024x1024xf32> -> tensor<2x1024x1024xf32>
      %1 = dist.all_reduce sum %0 over @m {"t"} purpose activation : tensor<2x1024x1024xf32>
      return %1 : tensor<2x1024x1024xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @m <["t"=2]>
    func.func @f(%x: tensor<2x1024x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<2x1024x1024xf32> {
      %0 = nn.slice %x [0, 0, 0] [1, 1024, 1024] [1, 1, 1] : tensor<2x1024x1024xf32> -> tensor<1x1024x1024xf32>
      %1 = nn.einsum "bsh,hf->bsf" %0, %w : tensor<1x1024x1024xf32>, tensor<1024x1024xf32> -> tensor<1x1024x1024xf32>
      %2 = nn.slice %x [1, 0, 0] [1, 1024, 1024] [1, 1, 1] : tensor<2x1024x1024xf32> -> tensor<1x1024x1024xf32>
      %3 = nn.einsum "bsh,hf->bsf" %2, %w : tensor<1x1024x1024xf32>, tensor<1024x1024xf32> -> tensor<1x1024x1024xf32>
      %4 = dist.all_reduce sum %1 over @m {"t"} purpose activation : tensor<1x1024x1024xf32>
      %5 = dist.all_reduce sum %3 over @m {"t"} purpose activation : tensor<1x1024x1024xf32>
      %6 = nn.concat %4, %5 dim = 0 : tensor<1x1024x1024xf32>, tensor<1x1024x1024xf32> -> tensor<2x1024x1024xf32>
      return %6 : tensor<2x1024x1024xf32>
    }
    ```
  }];
  let options = [
    Option<"cluster", "cluster", "std::string", "\"\"", "cluster.toml; empty: the defaults.">
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistOverlapExpertsPass : Pass<"dist-overlap-experts", "::mlir::ModuleOp"> {
  let summary = "Overlap computation with the exchange of tokens (expert parallelism)";
  let description = [{
    Runs on per-rank programs. An exchange (`dist.all_to_all_v`) sends tokens to the ranks of their
    experts, or sends the results back. The pass moves later operations that do not depend on the
    exchanged tokens to before the first operation that reads them: shared experts and, in the backward
    pass, weight gradients. It moves only library calls, such as matrix products, and the operations
    that compute their operands. It stops when the moved operations take as long as the exchange,
    according to the cost model (which reads the file `cluster`). `rt-split-async` later starts the
    exchange before the moved operations and waits for it after them.

    Before:
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func @f(%x: tensor<2x5x6xf32>, %n: tensor<2xi64>, %w: tensor<6x6xf32>) -> (tensor<2x5x6xf32>, tensor<2x5x6xf32>) {
      %0 = dist.all_to_all_v %x sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<2x5x6xf32> counts tensor<2xi64>
      %1 = nn.sigmoid %0 : tensor<2x5x6xf32>
      %2 = nn.einsum "rpk,kn->rpn" %x, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
      return %1, %2 : tensor<2x5x6xf32>, tensor<2x5x6xf32>
    }
    ```

    After:
    ```mlir
    dist.mesh @m <["x"=2]>
    func.func @f(%x: tensor<2x5x6xf32>, %n: tensor<2xi64>, %w: tensor<6x6xf32>) -> (tensor<2x5x6xf32>, tensor<2x5x6xf32>) {
      %0 = dist.all_to_all_v %x sent %n received %n expect [5] over @m {"x"} purpose expert : tensor<2x5x6xf32> counts tensor<2xi64>
      %2 = nn.einsum "rpk,kn->rpn" %x, %w : tensor<2x5x6xf32>, tensor<6x6xf32> -> tensor<2x5x6xf32>
      %1 = nn.sigmoid %0 : tensor<2x5x6xf32>
      return %1, %2 : tensor<2x5x6xf32>, tensor<2x5x6xf32>
    }
    ```
  }];
  let options = [
    Option<"cluster", "cluster", "std::string", "\"\"", "A cluster.toml with the links; none: defaults.">,
  ];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

def DistBucketPass : Pass<"dist-bucket", "::mlir::ModuleOp"> {
  let summary = "Merge collectives into buckets";
  let description = [{
    Runs on per-rank programs. Independent collectives of the same kind, group
    and purpose are merged into one collective (a bucket), unless an operation
    that reads the result of one of them would then have to wait for the
    operands of a later one. A bucket has at most `bucket` bytes. If `bucket` is
    0, it has at most as many bytes as the links of the group transfer in 20
    times their latency (both read from the file `cluster`), but this limit is
    at least 256 KiB and at most 25 MiB. Because buckets are limited, ranks can
    compute the operands of the next bucket while a bucket is sent. The order of
    collectives is the same on all ranks, before and after the pass.

    Before:
    ```mlir
    %0 = dist.all_reduce sum %a over @m {"data"} purpose gradient : tensor<6xf32>
    %1 = dist.all_reduce sum %b over @m {"data"} purpose gradient : tensor<8xf32>
    ```

    After:
    ```mlir
    %0:2 = dist.all_reduce sum %a, %b over @m {"data"} purpose gradient : tensor<6xf32>, tensor<8xf32>
    ```
  }];
  let options = [
    Option<"bucket", "bucket", "int64_t", "0", "Largest bucket in bytes; 0: chosen by the links.">,
    Option<"cluster", "cluster", "std::string", "\"\"", "cluster.toml; empty: the defaults.">
  ];
  // Loading the nn dialect also loads arith and math, and attaches their sharding rules.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

#endif
