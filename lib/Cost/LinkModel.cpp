//===- LinkModel.cpp - cost model of collectives --------------------------===//

#include "cleave/Cost/LinkModel.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::cost;
using namespace cleave::dist;

FailureOr<Cluster> cost::loadCluster(Operation *module,
                                     const std::string &file) {
  if (file.empty())
    return Cluster();
  ConfigResult<Cluster> cluster = cleave::loadCluster(file);
  if (!cluster)
    return module->emitError(cluster.error()), failure();
  return *cluster;
}

LinkModel::LinkModel(const MeshAxes &mesh, ArrayRef<std::string> links,
                     const Cluster &cluster) {
  for (unsigned axis = 0; axis < mesh.count(); ++axis) {
    const LinkClass &link =
        cluster.link(axis < links.size() ? links[axis] : "intra");
    auto *at = llvm::find(classes, link);
    classOf.push_back(at - classes.begin());
    if (at == classes.end())
      classes.push_back(link);
    sizes.push_back(mesh.size(Axis(axis)));
  }
  finish();
}

LinkModel::LinkModel(const MeshAxes &mesh, const LinkClass &link) {
  classes.push_back(link);
  classOf.assign(mesh.count(), 0);
  for (unsigned axis = 0; axis < mesh.count(); ++axis)
    sizes.push_back(mesh.size(Axis(axis)));
  finish();
}

LinkModel LinkModel::of(Operation *module, const MeshAxes &mesh,
                        const Cluster &cluster) {
  SmallVector<std::string> names;
  module->walk([&](MeshOp op) {
    for (unsigned axis = 0; axis < mesh.count(); ++axis)
      names.push_back(op.linkOf(mesh.ref(axis)).str());
    return WalkResult::interrupt();
  });
  return LinkModel(mesh, names, cluster);
}

FailureOr<Machine> Machine::load(ModuleOp module, const std::string &file) {
  FailureOr<MeshAxes> mesh = MeshAxes::of(module);
  if (failed(mesh))
    return failure();
  FailureOr<Cluster> cluster = loadCluster(module, file);
  if (failed(cluster))
    return failure();
  auto links = LinkModel::of(module, *mesh, *cluster);
  return Machine{std::move(*mesh), std::move(*cluster), std::move(links)};
}

Machine Machine::withoutLatency(ModuleOp module) const {
  Machine ideal = *this;
  for (auto &[name, link] : ideal.cluster.links)
    link.latency = link.message = 0;
  ideal.links = LinkModel::of(module, ideal.mesh, ideal.cluster);
  return ideal;
}

void LinkModel::finish() {
  SmallVector<unsigned> order(classes.size());
  for (auto [index, at] : llvm::enumerate(order))
    at = index;
  llvm::stable_sort(order, [&](unsigned a, unsigned b) {
    return classes[a].bytesPerSecond < classes[b].bytesPerSecond;
  });
  SmallVector<LinkClass> sorted;
  SmallVector<unsigned> place(classes.size());
  for (auto [index, at] : llvm::enumerate(order)) {
    sorted.push_back(classes[at]);
    place[at] = index;
  }
  classes = std::move(sorted);
  for (unsigned &at : classOf)
    at = place[at];
  for (auto [index, link] : llvm::enumerate(classes)) {
    double perByte = 1 / link.bytesPerSecond;
    minLatency = index ? std::min(minLatency, link.latency) : link.latency;
    minPerByte = index ? std::min(minPerByte, perByte) : perByte;
  }
}

SmallVector<LinkModel::Level, 2> LinkModel::levels(AxisSet group) const {
  SmallVector<Level, 2> levels;
  for (auto [index, link] : llvm::enumerate(classes)) {
    int64_t ranks = 1;
    for (unsigned axis = 0; axis < classOf.size(); ++axis)
      if (classOf[axis] == index && contains(group, axis))
        ranks *= sizes[axis];
    if (ranks > 1)
      levels.push_back({&link, ranks});
  }
  return levels;
}

double LinkModel::allGather(AxisSet group, double bytes) const {
  double seconds = 0, piece = bytes;
  SmallVector<Level, 2> all = levels(group);
  for (const Level &level : all)
    piece /= level.ranks;
  for (const Level &level : all) {
    seconds += startOf(*level.link, level.ranks) +
               (level.ranks - 1) * piece / level.link->bytesPerSecond;
    piece *= level.ranks;
  }
  return seconds;
}

double LinkModel::startOf(const LinkClass &link, int64_t ranks) {
  return std::min(llvm::Log2_64_Ceil(ranks) * link.latency,
                  link.latency + (ranks - 2) * link.message);
}

double LinkModel::allReduce(AxisSet group, double bytes) const {
  SmallVector<Level, 2> all = levels(group);
  double twice = 2 * allGather(group, bytes);
  if (all.size() != 1)
    return twice;
  const LinkClass &link = *all[0].link;
  return std::min(twice, startOf(link, all[0].ranks) +
                             (all[0].ranks - 1) * bytes / link.bytesPerSecond);
}

double LinkModel::allToAll(AxisSet group, double bytes) const {
  int64_t ranks = 1;
  for (const Level &level : levels(group))
    ranks *= level.ranks;
  return ranks == 1 ? 0
                    : messages(group, bytes * (ranks - 1) / ranks, ranks - 1);
}

double LinkModel::permute(AxisSet group, double bytes) const {
  SmallVector<Level, 2> all = levels(group);
  if (all.empty())
    return 0;
  return all[0].link->latency + bytes / all[0].link->bytesPerSecond;
}

double LinkModel::exchange(AxisSet group, double bytes, double peers) const {
  SmallVector<Level, 2> all = levels(group);
  if (all.empty() || (peers <= 0 && bytes <= 0))
    return 0;
  return all[0].link->latency + messages(group, bytes, peers);
}

double LinkModel::messages(AxisSet group, double bytes, double peers) const {
  SmallVector<Level, 2> all = levels(group);
  double seconds =
      all[0].link->latency + std::max(peers - 1, 0.0) * all[0].link->message;
  int64_t ranks = 1;
  for (const Level &level : all)
    ranks *= level.ranks;
  // Peers that have the same coordinates on all slower levels, but a different
  // one on this level, are reached over this level's links. `share` is their
  // fraction of all peers. `within` is the number of ranks that agree with this
  // rank on this and on all slower levels.
  int64_t within = ranks;
  for (const Level &level : all) {
    within /= level.ranks;
    double share = double(level.ranks - 1) * within / (ranks - 1);
    seconds += bytes * share / level.link->bytesPerSecond;
  }
  return seconds;
}
