//===- LinkModel.h - cost model of collectives ------------------*- C++ -*-===//
//
// Computes the time of a collective over a group of ranks from the classes of
// the links that the group's axes cross.
//
// If the axes of a group cross links of several classes, a collective runs
// level by level, with one level for each class. Gathers use the slowest links
// first, with the smallest pieces; reduce-scatters use them last. Over a level
// of n ranks a gather or reduce-scatter moves (n - 1) pieces, in ceil(log2 n)
// rounds or all at once, whichever is faster. An all-reduce is a reduce-scatter
// followed by a gather. Over a single level, an all-reduce may instead send
// every value to every rank, which is faster for small values.
//
// All-to-all and exchange have all messages in flight at once. Their time is
// one latency of the slowest level, `message` for every further message, and
// for each level the bytes to the peers across this level over its bandwidth.
// An exchange distributes its bytes evenly over the peers. An exchange takes
// one more latency, since its boxes are packed, so that an equivalent
// collective is preferred.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_COST_LINKMODEL_H
#define CLEAVE_COST_LINKMODEL_H

#include "cleave/Config/Cluster.h"
#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::cost {

/// Loads the file, or the defaults for "". Errors are reported on the module.
mlir::FailureOr<Cluster> loadCluster(mlir::Operation *module,
                                     const std::string &file);

class LinkModel {
public:
  /// `links` has the link class of each axis atom of `mesh`; a missing class is
  /// "intra".
  LinkModel(const dist::MeshAxes &mesh, llvm::ArrayRef<std::string> links,
            const Cluster &cluster);
  /// Creates a model in which all axes have the same link.
  LinkModel(const dist::MeshAxes &mesh, const LinkClass &link);
  /// Creates a model with the link classes from the dist.mesh of the module.
  static LinkModel of(mlir::Operation *module, const dist::MeshAxes &mesh,
                      const Cluster &cluster);
  /// Creates a model for a cluster.toml.
  static mlir::FailureOr<LinkModel> load(mlir::Operation *module,
                                         const dist::MeshAxes &mesh,
                                         const std::string &file);

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
  /// `bytes` is what the rank with the most received bytes receives; `peers` is
  /// the number of ranks from which it receives.
  double exchange(dist::AxisSet group, double bytes, double peers) const;

  /// The lowest latency of a message, and the lowest time of a byte, over all
  /// links.
  double leastLatency() const { return minLatency; }
  double leastSecondsPerByte() const { return minPerByte; }

private:
  struct Level {
    const LinkClass *link;
    int64_t ranks;
  };
  /// Returns the link classes that the group crosses, the slowest first.
  llvm::SmallVector<Level, 2> levels(dist::AxisSet group) const;
  /// Returns the latency of a gather.
  static double startOf(const LinkClass &link, int64_t ranks);
  /// Returns the seconds of messages to all peers at once.
  double messages(dist::AxisSet group, double bytes, double peers) const;
  void finish();

  llvm::SmallVector<LinkClass> classes; // slowest first
  llvm::SmallVector<unsigned> classOf;  // of each atom
  llvm::SmallVector<int64_t> sizes;     // of each atom
  double minLatency = 0, minPerByte = 0;
};

/// The machine, for passes that compare communication with compute: the mesh of
/// a module, and the times of a cluster.toml.
struct Machine {
  dist::MeshAxes mesh;
  Cluster cluster;
  LinkModel links;
  /// Errors of the file are reported on the module, as is a module without
  /// exactly one mesh.
  static mlir::FailureOr<Machine> load(mlir::ModuleOp module,
                                       const std::string &file);
};

} // namespace cleave::cost

#endif
