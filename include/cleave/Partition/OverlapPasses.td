//===- OverlapPasses.td - what hides messages behind computing -----*- tablegen -*-===//

#ifndef CLEAVE_PARTITION_OVERLAPPASSES_TD
#define CLEAVE_PARTITION_OVERLAPPASSES_TD

include "mlir/Pass/PassBase.td"

def DistChunkProductsPass : Pass<"dist-chunk-products", "::mlir::ModuleOp"> {
  let summary = "Cut products that are waited for, or that wait, into pieces";
  let description = [{
    On local programs: where products read what is gathered, or give what is summed over
    ranks, and a rank has nothing else to compute meanwhile, collective and products are cut
    along a dimension that both leave alone: while one piece is computed, the next one is gathered, or
    the last one is summed (Wang et al., "Overlap Communication with Dependent Computation via
    Decomposition in Large Deep Learning Models", ASPLOS 2023, for rings). Into two or four pieces, by the
    model of links and products in `cluster`, where that saves a tenth of the collective's time, the pieces' latencies
    add no more than half of it, and they lie contiguously. Gradients of matrices, which can be computed while later
    collectives are waited for, are set against these.

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
  let summary = "Compute what needs no rows while rows travel to experts and back";
  let description = [{
    On local programs: in front of the first reader of rows that `dist.all_to_all_v`
    brings, what comes later and does not need them is computed: experts that all
    tokens share, and gradients of matrices on the way back. So much of it as takes, by
    the model of links and of products, as long as the exchange; only library
    calls, and what they need, move. `rt-split-async` then starts the exchange in
    front of it and ends it behind.

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
  let summary = "Send fewer messages";
  let description = [{
    On local programs: independent collectives of one kind, group and purpose
    become one message where nothing has to wait for it longer than for the last of
    them. A bucket has at most `bucket` bytes; 0: as many as take 20 times the
    latency of the group's links, by `cluster`, but 256 KiB to 25 MiB, so that the
    next one can be under way while others compute. Order of collectives is the same
    on all ranks, before and after.

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
    Option<"bucket", "bucket", "int64_t", "0", "Largest message in bytes; 0: by the links.">,
    Option<"cluster", "cluster", "std::string", "\"\"", "cluster.toml; empty: the defaults.">
  ];
  // The rules of arith and math come with nn.
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::nn::NNDialect"];
}

#endif
