// Operations that can take a dimension tile by tile.

#ifndef CLEAVE_INTERFACES_STREAMING_TD
#define CLEAVE_INTERFACES_STREAMING_TD

include "mlir/IR/OpBase.td"

def StreamingInterface : OpInterface<"StreamingInterface"> {
  let cppNamespace = "::cleave";
  let description = [{
    An operation that needs a factor of its sharding rule whole, but not at once:
    it can run on one tile of the factor after the other. Of its results, those
    that have the factor come tile by tile; the others are combined by
    `combineTiles`, in any order of the tiles.
  }];
  let methods = [
    InterfaceMethod<"The factor, as an index into those of the sharding rule.",
                    "int64_t", "getStreamedFactor", (ins)>,
    InterfaceMethod<[{
        The operands of which the tiles are brought along, by index. Others that
        have the factor are small, and are there whole.
      }],
      "::llvm::SmallVector<unsigned>", "getStreamedOperands", (ins)>,
    InterfaceMethod<[{
        The results, without those that have the factor, for two disjoint sets of
        tiles, given the results for each.
      }],
      "::llvm::SmallVector<::mlir::Value>", "combineTiles",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$some, "::mlir::ValueRange":$others)>,
    InterfaceMethod<[{
        The results, without those that have the factor, for the tiles of all ranks,
        given those of this rank's. `reduce` combines values of all ranks, element by
        element, and gives every rank the result.
      }],
      "::llvm::SmallVector<::mlir::Value>", "combineRanks",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$own, "::cleave::RankReduction":$reduce)>,
    InterfaceMethod<[{
        Where the operation counts the elements of the factor itself, gives it their
        indices in the whole as operands, so that a tile can be told its own.
      }],
      "void", "nameIndices", (ins "::mlir::OpBuilder &":$builder)>,
    InterfaceMethod<[{
        In a copy of the operation that stands on one tile: elements of the tile
        count only where `inside` (tensor<tile x i1>) is true.
      }],
      "void", "maskTile", (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$inside)>,
    InterfaceMethod<"Which elements of the factor are read at all, where the operation tells; else none.",
                    "::std::optional<::cleave::StreamReach>", "getReach", (ins), "",
                    "return std::nullopt;">,
  ];
}

#endif
