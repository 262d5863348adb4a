//===- StreamTiles.h - operations that read a gathered dimension by tiles -===//
//
// On verified per-rank programs: finds operations with a StreamingInterface
// whose streamed factor is gathered, and the tiles that are gathered.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H
#define CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H

#include "cleave/Interfaces/Streaming.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/Propagation/FactorGraph.h"

namespace cleave::partition {

/// The dimension that consists of this factor alone, or -1.
int64_t dimOf(const TensorFactors &dims, int64_t factor);

/// A tile that is gathered for an operand, or the tile of a result.
struct StreamTile {
  unsigned index = 0; // of the operand or result
  int64_t dim = 0;
  mlir::Operation *collective = nullptr; // gathers, scatters or slices
  unsigned part = 0;                     // the collective's operand
};

/// An operation that reads the tiles of all ranks along `axes`.
struct Stream {
  StreamingInterface op;
  ShardingRule rule;
  int64_t factor = 0, whole = 0, tile = 0, ranks = 1;
  dist::AxisListAttr axes;
  llvm::SmallVector<StreamTile> gathered, scattered;

  bool isPadded() const { return tile * ranks != whole; }
  /// Whether this operand is streamed tile by tile.
  bool isGathered(unsigned operand) const;
  /// Erases the operation, which must have no readers, and the operations that
  /// only served it.
  void erase();
};

/// The gathered tiles of the operation; nullopt if it has none, or if a tile is
/// beyond the end. The caller fills in `scattered`.
std::optional<Stream> findStream(StreamingInterface op,
                                 const dist::MeshAxes &mesh);

/// The bytes of the gathered tiles, and the bytes of other operands and of
/// results that lack the streamed factor.
double bytesOfTiles(const Stream &stream);
double bytesOfTheRest(const Stream &stream);

/// Emits the operation on one tile, in place of the original operation.
class TileEmitter {
public:
  TileEmitter(Stream &stream, const dist::MeshAxes &mesh);

  /// Makes the global indices of a tile explicit operands. This must be called
  /// first.
  void nameIndices();
  /// The position of this rank among the ranks of the stream: tensor<i64>.
  mlir::Value ownIndex();
  /// The tile of this rank with padding replaced by zeros. Undefined padding
  /// must not be read, even if the result does not depend on it.
  mlir::Value cleared(const StreamTile &tile);
  /// A copy of the operation on the tiles of rank `origin` (tensor<i64>), which
  /// replace the gathered operands.
  mlir::Operation *emitPart(llvm::ArrayRef<mlir::Value> tiles,
                            mlir::Value origin);
  /// Copies the attributes that passes set on the original operation.
  mlir::Operation *copyMarks(mlir::Operation *op);

protected:
  mlir::RankedTensorType scalar() {
    return mlir::RankedTensorType::get({}, builder.getI64Type());
  }
  /// A mask of the elements that are not padding in the tile of rank `index`.
  mlir::Value inside(mlir::Value index);
  /// The slice of an operand that is not gathered which belongs to the tile of
  /// rank `origin`.
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
