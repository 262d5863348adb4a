//===- LinkModel.h - cost model of collectives ------------------*- C++ -*-===//
//
// Computes the time of a collective over a group of ranks from the classes of
// the links that the group's axes cross.
//
// If these axes cross links of several classes, a collective runs level by
// level, with one level for each class. A gather runs on the level of the
// slowest links first, because each rank then has only its own tile to send; a
// reduce-scatter runs on this level last. On a level of n ranks, each rank
// receives n - 1 tiles, where a tile is what a rank has before the gather or
// after the reduce-scatter. The tiles are sent in ceil(log2 n) steps, one after
// another, or all at once, whichever is faster. An all-reduce is a
// reduce-scatter followed by a gather. On a single level, an all-reduce may
// instead send every value to every rank, which is faster for small values.
//
// An all-to-all or exchange has all messages in flight at once. Its time is the
// latency of the slowest level, plus `message` (Cluster.h) for every message
// after the first, plus, for each level, the number of bytes sent across this
// level divided by its bandwidth. The bytes of an exchange are assumed to be
// distributed evenly over the peers. An exchange (dist.exchange) copies
// rectangular ranges of elements into messages. Its time is one latency longer
// because of these copies, so that an equivalent collective is preferred.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_COST_LINKMODEL_H
#define CLEAVE_COST_LINKMODEL_H

#include "cleave/Config/Cluster.h"
#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::cost {

/// Loads the cluster description `file` (see cleave::loadCluster), or returns
/// the default machine if `file` is empty. Errors are reported on the module.
mlir::FailureOr<Cluster> loadCluster(mlir::Operation *module,
                                     const std::string &file);

class LinkModel {
public:
  /// Creates a model of the mesh `mesh`. `links` has the link class of each
  /// atom (indivisible part of an axis) of the mesh; an atom without a class
  /// has the class "intra".
  LinkModel(const dist::MeshAxes &mesh, llvm::ArrayRef<std::string> links,
            const Cluster &cluster);
  /// Creates a model in which all axes have the same link.
  LinkModel(const dist::MeshAxes &mesh, const LinkClass &link);
  /// Creates a model with the link classes from the dist.mesh of the module.
  static LinkModel of(mlir::Operation *module, const dist::MeshAxes &mesh,
                      const Cluster &cluster);

  // Returns the seconds of each collective. `bytes` is the payload of the
  // operation: all bytes that a rank has after a gather, or before a
  // reduce-scatter.
  double allGather(dist::AxisSet group, double bytes) const;
  double reduceScatter(dist::AxisSet group, double bytes) const {
    return allGather(group, bytes);
  }
  double allReduce(dist::AxisSet group, double bytes) const;
  double allToAll(dist::AxisSet group, double bytes) const;
  double permute(dist::AxisSet group, double bytes) const;
  /// Returns the seconds of an exchange. `bytes` is the largest number of bytes
  /// that a rank receives, and `peers` is the number of ranks from which this
  /// rank receives them.
  double exchange(dist::AxisSet group, double bytes, double peers) const;

  /// Return the smallest latency of a message, and the shortest time in seconds
  /// to transfer a byte, over all link classes.
  double leastLatency() const { return minLatency; }
  double leastSecondsPerByte() const { return minPerByte; }

private:
  struct Level {
    const LinkClass *link;
    int64_t ranks;
  };
  /// Returns a level for each link class that the axes of the group cross, the
  /// slowest class first.
  llvm::SmallVector<Level, 2> levels(dist::AxisSet group) const;
  /// Returns the latency of a gather over `ranks` ranks on one level. This is
  /// the part of its time that does not depend on the number of bytes.
  static double startOf(const LinkClass &link, int64_t ranks);
  /// Returns the seconds until a rank has exchanged `bytes` bytes, in equal
  /// parts and all at once, with `peers` other ranks of the group.
  double messages(dist::AxisSet group, double bytes, double peers) const;
  void finish();

  llvm::SmallVector<LinkClass> classes; // slowest first
  llvm::SmallVector<unsigned> classOf;  // of each atom
  llvm::SmallVector<int64_t> sizes;     // of each atom
  double minLatency = 0, minPerByte = 0;
};

/// What passes need to know about a machine to weigh communication against
/// computation: the mesh of a module, and the rates and latencies of a
/// cluster.toml.
struct Machine {
  dist::MeshAxes mesh;
  Cluster cluster;
  LinkModel links;
  /// Loads the file and the module's mesh. Reports an error on the module if
  /// the file is invalid, or if the module does not have exactly one mesh.
  static mlir::FailureOr<Machine> load(mlir::ModuleOp module,
                                       const std::string &file);

  /// Returns the same machine without latencies: a message takes only the time
  /// that its bytes need.
  Machine withoutLatency(mlir::ModuleOp module) const;
};

} // namespace cleave::cost

#endif
