//===- LinkModel.h - how long collectives take ------------------*- C++ -*-===//
//
// The time of a collective over a group of ranks, from the classes of the links
// that the group's axes cross.
//
// A group whose axes cross links of several classes works level by level.
// Gathers use the slowest links first, with the smallest pieces;
// reduce-scatters mirror that. Over a level of n ranks a gather or
// reduce-scatter moves (n - 1) pieces, in ceil(log2 n) rounds or all at once,
// whichever is faster. An all-reduce is a reduce-scatter and a gather; over one
// level it may instead send every value to every rank, which is faster for
// small values. All-to-all and exchange have all messages in flight at once:
// they take one latency of the slowest level, `message` for every further
// message, and the bytes for the peers across each level over its links (an
// exchange spreads its bytes evenly over the peers). An exchange takes one more
// latency, as its boxes are packed, so that an equivalent collective is
// preferred.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_COST_LINKMODEL_H
#define CLEAVE_COST_LINKMODEL_H

#include "cleave/Config/Cluster.h"
#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::cost {

/// Loads the file; "": the defaults. Errors are reported on the module.
mlir::FailureOr<Cluster> loadCluster(mlir::Operation *module,
                                     const std::string &file);

class LinkModel {
public:
  /// `links` has the link class of each axis atom of `mesh`; missing: "intra".
  LinkModel(const dist::MeshAxes &mesh, llvm::ArrayRef<std::string> links,
            const Cluster &cluster);
  /// The same link everywhere.
  LinkModel(const dist::MeshAxes &mesh, const LinkClass &link);
  /// Takes link classes from the dist.mesh of the module.
  static LinkModel of(mlir::Operation *module, const dist::MeshAxes &mesh,
                      const Cluster &cluster);
  /// The same for a cluster.toml.
  static mlir::FailureOr<LinkModel> load(mlir::Operation *module,
                                         const dist::MeshAxes &mesh,
                                         const std::string &file);

  // Seconds of each collective. `bytes` is the payload of the operation: all
  // bytes that a rank has after a gather, or before a reduce-scatter.
  double allGather(dist::AxisSet group, double bytes) const;
  double reduceScatter(dist::AxisSet group, double bytes) const {
    return allGather(group, bytes);
  }
  double allReduce(dist::AxisSet group, double bytes) const;
  double allToAll(dist::AxisSet group, double bytes) const;
  double permute(dist::AxisSet group, double bytes) const;
  /// `bytes`: received by the rank that receives most; `peers`: the number of
  /// ranks that it receives from.
  double exchange(dist::AxisSet group, double bytes, double peers) const;

  /// The lowest latency of a message and time of a byte over all links.
  double leastLatency() const { return minLatency; }
  double leastSecondsPerByte() const { return minPerByte; }

private:
  struct Level {
    const LinkClass *link;
    int64_t ranks;
  };
  /// The classes that the group crosses, the slowest first.
  llvm::SmallVector<Level, 2> levels(dist::AxisSet group) const;
  /// Latency of a gather.
  static double startOf(const LinkClass &link, int64_t ranks);
  /// Messages to all peers at once.
  double messages(dist::AxisSet group, double bytes, double peers) const;
  void finish();

  llvm::SmallVector<LinkClass> classes; // slowest first
  llvm::SmallVector<unsigned> classOf;  // of each atom
  llvm::SmallVector<int64_t> sizes;     // of each atom
  double minLatency = 0, minPerByte = 0;
};

/// The machine, for passes that weigh communication against compute: the mesh
/// of a module, and the times of a cluster.toml.
struct Machine {
  dist::MeshAxes mesh;
  Cluster cluster;
  LinkModel links;
  /// Errors of the file, and a module with other than one mesh, are reported on
  /// the module.
  static mlir::FailureOr<Machine> load(mlir::ModuleOp module,
                                       const std::string &file);
};

} // namespace cleave::cost

#endif
