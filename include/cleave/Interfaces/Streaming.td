// Operations that can process a dimension tile by tile.

#ifndef CLEAVE_INTERFACES_STREAMING_TD
#define CLEAVE_INTERFACES_STREAMING_TD

include "mlir/IR/OpBase.td"

def StreamingInterface : OpInterface<"StreamingInterface"> {
  let cppNamespace = "::cleave";
  let description = [{
    An operation that reads all elements along a factor of its sharding rule (the streamed
    factor), but can process the factor one tile after another. Results that have the factor
    are computed tile by tile. Each tile gives partial values of the other results, which
    `combineTiles` combines; the order of the tiles does not matter.
  }];
  let methods = [
    InterfaceMethod<"Returns the streamed factor, as an index into the factors of the sharding rule.",
                    "int64_t", "getStreamedFactor", (ins)>,
    InterfaceMethod<[{
        Returns the indices of the operands that are processed tile by tile. Other operands
        that have the streamed factor are small, and every rank holds all of their elements.
      }],
      "::llvm::SmallVector<unsigned>", "getStreamedOperands", (ins)>,
    InterfaceMethod<[{
        Combines the results for two disjoint sets of tiles into the results for the union
        of the sets. Results that have the streamed factor are left out.
      }],
      "::llvm::SmallVector<::mlir::Value>", "combineTiles",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$some, "::mlir::ValueRange":$others)>,
    InterfaceMethod<[{
        Combines the results for this rank's tiles with those of the other ranks into the
        results for the tiles of all ranks. Results that have the streamed factor are left
        out. `reduce` combines values of all ranks, element by element, and gives every rank
        the result.
      }],
      "::llvm::SmallVector<::mlir::Value>", "combineRanks",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$own, "::cleave::RankReduction":$reduce)>,
    InterfaceMethod<[{
        If the operation itself computes the index of each element along the streamed
        factor, adds the global indices as operands, so that the operation can run on one
        tile with the global indices of this tile.
      }],
      "void", "nameIndices", (ins "::mlir::OpBuilder &":$builder)>,
    InterfaceMethod<[{
        Masks the elements of the tile for which `inside` (tensor<tile x i1>) is false, in
        a copy of the operation that runs on one tile.
      }],
      "void", "maskTile", (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$inside)>,
    InterfaceMethod<"Returns which elements along the streamed factor are read, or nullopt if this is not known.",
                    "::std::optional<::cleave::StreamReach>", "getReach", (ins), "",
                    "return std::nullopt;">,
  ];
}

#endif
