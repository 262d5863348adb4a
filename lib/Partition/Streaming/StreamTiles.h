//===- StreamTiles.h - operations that read a gathered dimension by tiles -===//
//
// Some operations (StreamingInterface) can process a dimension of their
// operands tile by tile, as attention can along its keys. The factor of this
// dimension in the sharding rule is called the streamed factor. The functions
// here work on per-rank programs that dist-verify-variance has accepted: they
// find such operations whose operands are all-gathered along this dimension,
// find the tiles that are gathered, and emit the operation on one tile.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H
#define CLEAVE_LIB_PARTITION_STREAMING_STREAMTILES_H

#include "cleave/Interfaces/Streaming.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/Propagation/FactorGraph.h"

namespace cleave::partition {

/// Returns the dimension that consists of this factor alone; -1 if there is
/// none.
int64_t dimOf(const TensorFactors &dims, int64_t factor);

/// An operand that is gathered from tiles, or a result of which the rank's tile
/// is taken, with the collective that does this.
struct StreamTile {
  unsigned index = 0; // of the operand or result
  int64_t dim = 0;
  mlir::Operation *collective = nullptr; // gathers, scatters or slices
  unsigned part = 0;                     // the collective's operand
};

/// An operation that reads the tiles of all ranks along `axes`, and so a whole
/// dimension. `factor` is the factor of this dimension in the operation's
/// sharding rule.
struct Stream {
  StreamingInterface op;
  ShardingRule rule;
  int64_t factor = 0, whole = 0, tile = 0, ranks = 1;
  dist::AxisListAttr axes;
  llvm::SmallVector<StreamTile> gathered, scattered;

  bool isPadded() const { return tile * ranks != whole; }
  /// Returns whether this operand is gathered from tiles; other operands are
  /// whole on every rank.
  bool isGathered(unsigned operand) const;
  /// Erases the operation, which must have no readers, and the collectives and
  /// slices that only served it.
  void erase();
};

/// Returns which operands of the operation are gathered from tiles; nullopt if
/// none is, or if the tile of some rank consists of padding only. The caller
/// fills in the member `scattered`.
std::optional<Stream> findStream(StreamingInterface op,
                                 const dist::MeshAxes &mesh);

/// Returns the bytes of this rank's tiles of the operands that are gathered.
double bytesOfTiles(const Stream &stream);
/// Returns the bytes of all other operands, and of those results that do not
/// have the streamed dimension.
double bytesOfTheRest(const Stream &stream);

/// Emits the operation on one tile, in place of the original operation.
class TileEmitter {
public:
  TileEmitter(Stream &stream, const dist::MeshAxes &mesh);

  /// If the operation computes the indices along the streamed dimension itself,
  /// makes them operands of it, so that it can run on a tile with the indices
  /// of this tile in the whole dimension. This must be called first.
  void nameIndices();
  /// Returns the index, as a tensor<i64>, of this rank among the ranks along
  /// `stream.axes`, whose tiles the operation reads.
  mlir::Value ownIndex();
  /// Returns this rank's tile with its padding replaced by zeros. Undefined
  /// padding must not be read, even if results do not depend on it.
  mlir::Value cleared(const StreamTile &tile);
  /// Emits the operation on `tiles`, the tiles of the rank with index `origin`
  /// (tensor<i64>), in place of the gathered operands.
  mlir::Operation *emitPart(llvm::ArrayRef<mlir::Value> tiles,
                            mlir::Value origin);
  /// Copies the discardable attributes of the original operation to `op`.
  mlir::Operation *copyMarks(mlir::Operation *op);

protected:
  mlir::RankedTensorType scalar() {
    return mlir::RankedTensorType::get({}, builder.getI64Type());
  }
  /// Emits a mask that is true for the elements that are not padding in the
  /// tile of rank `index`.
  mlir::Value inside(mlir::Value index);
  /// `value` is an operand that every rank has completely. Returns the part of
  /// it, along `dim`, that belongs to the tile of the rank with index `origin`.
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
