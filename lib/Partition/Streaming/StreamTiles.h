//===- StreamTiles.h - operations that read a gathered dimension by tiles -===//
//
// In proved per-rank programs: an operation with a StreamingInterface that
// reads its streamed factor gathered, and the tiles of it.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H
#define CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H

#include "cleave/Interfaces/Streaming.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/Propagation/FactorGraph.h"

namespace cleave::partition {

/// The dimension that is this factor alone; -1 where there is none.
int64_t dimOf(const TensorFactors &dims, int64_t factor);

/// A tile that is gathered for the operation, or into which its result goes.
struct StreamTile {
  unsigned index = 0; // of the operand or result
  int64_t dim = 0;
  mlir::Operation *collective = nullptr; // gathers, scatters or slices
  unsigned part = 0;                     // the collective's operand
};

/// An operation that reads the tiles of all ranks of `axes`.
struct Stream {
  StreamingInterface op;
  ShardingRule rule;
  int64_t factor = 0, whole = 0, tile = 0, ranks = 1;
  dist::AxisListAttr axes;
  llvm::SmallVector<StreamTile> gathered, scattered;

  bool isPadded() const { return tile * ranks != whole; }
  /// Whether this operand is brought along tile by tile.
  bool isGathered(unsigned operand) const;
  /// Erases the operation, which nothing reads any more, and what served it
  /// alone.
  void erase();
};

/// What the operation gathers; none where it has no tiles, or where a tile is
/// beyond the end. `scattered` is left to the caller.
std::optional<Stream> findStream(StreamingInterface op,
                                 const dist::MeshAxes &mesh);

/// Bytes of the tiles that are gathered, and of the operands that are not and
/// the results without the factor.
double bytesOfTiles(const Stream &stream);
double bytesOfTheRest(const Stream &stream);

/// Emits the operation on one tile, where it stands.
class TileEmitter {
public:
  TileEmitter(Stream &stream, const dist::MeshAxes &mesh);

  /// Has the operation told the indices that a tile has in the whole. First.
  void nameIndices();
  /// This rank's place among those of the stream: tensor<i64>.
  mlir::Value ownIndex();
  /// The tile of this rank, with zeros in place of padding, which nothing may
  /// read even where it does not count.
  mlir::Value cleared(const StreamTile &tile);
  /// A copy of the operation on the tiles of rank `origin` (tensor<i64>), which
  /// stand for the gathered operands.
  mlir::Operation *emitPart(llvm::ArrayRef<mlir::Value> tiles,
                            mlir::Value origin);
  /// What phases have noted of the operation holds for what it becomes.
  mlir::Operation *copyMarks(mlir::Operation *op);

protected:
  mlir::RankedTensorType scalar() {
    return mlir::RankedTensorType::get({}, builder.getI64Type());
  }
  /// Which elements of the tile of rank `index` are no padding.
  mlir::Value inside(mlir::Value index);
  /// The part of a whole operand that goes with the tile of rank `origin`.
  mlir::Value partOf(mlir::Value value, int64_t dim, mlir::Value origin);

  Stream &stream;
  const dist::MeshAxes &mesh;
  mlir::OpBuilder builder;
  mlir::Location loc;
  TensorExpr expr;

private:
  mlir::Value own;
};

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H
