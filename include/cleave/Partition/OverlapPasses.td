//===- OverlapPasses.td - overlap of communication and compute ----*- tablegen -*-===//

#ifndef CLEAVE_PARTITION_OVERLAPPASSES_TD
#define CLEAVE_PARTITION_OVERLAPPASSES_TD

include "mlir/Pass/PassBase.td"

def DistChunkProductsPass : Pass<"dist-chunk-products", "::mlir::ModuleOp"> {
  let summary = "Decompose exposed collectives and their products into chunks that overlap";
  let description = [{
    Runs on per-rank programs. It decomposes an exposed collective (a gather that products read, or a
    reduction of a product) and its products into chunks, along a dimension that neither the collective
    nor the products combine (usually the samples). While one chunk is computed, the next chunk is
    gathered, or the previous one is reduced (Wang et al., "Overlap Communication with Dependent
    Computation via Decomposition in Large Deep Learning Models", ASPLOS 2023, for rings). Products that
    lead only to weight gradients can hide a later collective; a collective that they hide is not
    decomposed.

    The pass uses two or four chunks if three conditions hold: by the cost model of `cluster` this saves
    at least a tenth of the collective's time; the collectives of all chunks together take at most 1.5
    times as long as the original collective; and chunks are contiguous in memory.

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
  let summary = "Compute while rows of tokens are exchanged with their experts";
  let description = [{
    Runs on per-rank programs. It moves later operations that do not depend on an exchange of rows
    (`dist.all_to_all_v`) to before the first reader of the exchange: shared experts, and weight
    gradients in the backward pass. Only library calls and the operations that they need are moved. The
    pass stops when the moved operations take as long as the exchange according to the cost model of
    `cluster`. `rt-split-async` then starts the exchange before them and waits for it after them.

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
    Runs on per-rank programs. Independent collectives of one kind, group and
    purpose become one, unless an operation that reads one of them would have to
    wait for a later one. A bucket has at most `bucket` bytes. With `bucket` =
    0, a bucket has as many bytes as its links transfer in 20 times their
    latency (both from `cluster`), but at least 256 KiB and at most 25 MiB.
    Because of this limit, ranks can compute the operands of the next bucket
    while a bucket is sent. The order of collectives is the same on all ranks,
    before and after.

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
