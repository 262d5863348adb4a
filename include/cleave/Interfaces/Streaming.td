// Operations that can process a dimension tile by tile.

#ifndef CLEAVE_INTERFACES_STREAMING_TD
#define CLEAVE_INTERFACES_STREAMING_TD

include "mlir/IR/OpBase.td"

def StreamingInterface : OpInterface<"StreamingInterface"> {
  let cppNamespace = "::cleave";
  let description = [{
    An operation that reads all elements of a factor of its sharding rule, but can run on
    one tile of the factor after another. Results that have the factor are computed tile
    by tile; the other results are combined by `combineTiles`, in any order of the tiles.
  }];
  let methods = [
    InterfaceMethod<"Returns the streamed factor, as an index into the factors of the sharding rule.",
                    "int64_t", "getStreamedFactor", (ins)>,
    InterfaceMethod<[{
        Returns the indices of the operands that are streamed tile by tile. Other operands
        that have the factor are small, and every rank holds all of their elements.
      }],
      "::llvm::SmallVector<unsigned>", "getStreamedOperands", (ins)>,
    InterfaceMethod<[{
        Combines the results for two disjoint sets of tiles into the results for their
        union. Results that have the factor are left out.
      }],
      "::llvm::SmallVector<::mlir::Value>", "combineTiles",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$some, "::mlir::ValueRange":$others)>,
    InterfaceMethod<[{
        Combines the results for this rank's tiles into the results for the tiles of all
        ranks. Results that have the factor are left out. `reduce` combines values of all
        ranks, element by element, and gives every rank the result.
      }],
      "::llvm::SmallVector<::mlir::Value>", "combineRanks",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$own, "::cleave::RankReduction":$reduce)>,
    InterfaceMethod<[{
        If the operation computes the indices of the factor's elements itself, adds the
        global indices as operands, so that the operation can run on one tile with the
        indices of this tile.
      }],
      "void", "nameIndices", (ins "::mlir::OpBuilder &":$builder)>,
    InterfaceMethod<[{
        Masks the elements of the tile for which `inside` (tensor<tile x i1>) is false, in
        a copy of the operation that runs on one tile.
      }],
      "void", "maskTile", (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$inside)>,
    InterfaceMethod<"Returns which elements of the factor are read, or nullopt if the operation cannot tell.",
                    "::std::optional<::cleave::StreamReach>", "getReach", (ins), "",
                    "return std::nullopt;">,
  ];
}

#endif
