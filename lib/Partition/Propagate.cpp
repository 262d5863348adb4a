//===- Propagate.cpp - dist-propagate -------------------------------------===//
//
// Spreads shardings over factors until nothing changes. Works on a side table;
// attributes are written at the end, because rewrites in between would drop
// them.
//
//===----------------------------------------------------------------------===//

#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Partition/FactorGraph.h"
#include "cleave/Partition/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallBitVector.h"
#include <deque>
#include <set>

namespace cleave {
#define GEN_PASS_DEF_DISTPROPAGATEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// Order in which edges take part: what keeps tensors alike goes first, then
/// what moves elements, then contractions. What moves tiles between ranks goes
/// last: kLastPriority.
int priorityOf(const Edge &edge) {
  if (!edge.op)
    return 0;
  bool alike = true;
  for (const Factor &factor : edge.rule.factors)
    alike &= factor.kind == FactorKind::PassThrough && factor.combiner == FactorCombiner::None;
  return alike ? 0 : edge.rule.movement ? 1 : 2;
}

constexpr int kLastPriority = 3;

class Propagation {
public:
  Propagation(FactorGraph &graph, const MeshAxes &mesh) : graph(graph), mesh(mesh) {
    for (const Node &node : graph.nodes) {
      State state;
      state.layout = Layout(node.type.getRank());
      state.open.assign(node.type.getRank(), true);
      state.origin.assign(node.type.getRank(), kNoNode);
      states.push_back(std::move(state));
    }
  }

  void run() {
    std::set<int64_t> rounds;
    for (const Node &node : graph.nodes)
      if (node.asked)
        rounds.insert(node.asked.getPriority());
    if (rounds.empty())
      rounds.insert(0);
    for (int64_t round : rounds) {
      admit(round);
      for (priority = 0; priority <= kLastPriority; ++priority)
        spread();
    }
  }

  const Layout &layout(NodeId id) const { return states[id].layout; }
  NodeId origin(NodeId id, int64_t dim) const { return states[id].origin[dim]; }

private:
  struct State {
    Layout layout;
    SmallVector<bool> open;
    AxisSet forbidden = 0;
    /// For each dimension, the node whose sharding it was taken from.
    SmallVector<NodeId> origin;
  };

  /// Puts in what was asked for with this priority.
  void admit(int64_t round) {
    for (auto [id, node] : llvm::enumerate(graph.nodes)) {
      if (!node.asked || node.asked.getPriority() != round)
        continue;
      State &state = states[id];
      state.layout = mesh.layout(node.asked);
      state.forbidden = setOf(mesh.decompose(node.asked.getReplicated()));
      for (auto [dim, attr] : llvm::enumerate(node.asked.getDims())) {
        state.open[dim] = attr.getIsOpen();
        state.origin[dim] = id;
      }
    }
  }

  void spread() {
    std::deque<unsigned> queue;
    llvm::SmallBitVector queued(graph.edges.size());
    auto push = [&](unsigned edge) {
      if (!queued.test(edge) && priorityOf(graph.edges[edge]) <= priority) {
        queued.set(edge);
        queue.push_back(edge);
      }
    };
    for (unsigned edge = 0; edge < graph.edges.size(); ++edge)
      push(edge);
    while (!queue.empty()) {
      unsigned edge = queue.front();
      queue.pop_front();
      queued.reset(edge);
      for (NodeId changed : visit(graph.edges[edge]))
        for (unsigned next : graph.edgesOf[changed])
          if (next != edge)
            push(next);
    }
  }

  /// Calls fn(node, dims) for each tensor of an edge.
  template <typename Fn> static void forEachTensor(const Edge &edge, Fn fn) {
    for (auto [node, dims] : llvm::zip_equal(edge.operands, edge.rule.operands))
      if (node != kNoNode)
        fn(node, dims);
    for (auto [node, dims] : llvm::zip_equal(edge.results, edge.rule.results))
      if (node != kNoNode)
        fn(node, dims);
  }

  SmallVector<NodeId, 2> visit(const Edge &edge) {
    const ShardingRule &rule = edge.rule;
    // The axes of each factor: the longest list that no tensor contradicts;
    // where two contradict, that of the larger tensor.
    struct Claim {
      Axes axes;
      int64_t weight = 0;
      NodeId origin = kNoNode;
    };
    SmallVector<Claim> claims(rule.factors.size());
    bool any = false;
    forEachTensor(edge, [&](NodeId node, const TensorFactors &dims) {
      if (graph.nodes[node].isGenerator)
        return;
      const State &state = states[node];
      int64_t weight = graph.nodes[node].type.getNumElements();
      for (auto [dim, made] : llvm::enumerate(dims)) {
        if (state.layout.dims[dim].empty())
          continue;
        for (auto [factor, axes] :
             llvm::zip_equal(made, axesOfFactors(made, rule, state.layout.dims[dim], mesh))) {
          FactorKind kind = rule.factors[factor].kind;
          if (axes.empty() || kind == FactorKind::NeedReplication ||
              (kind == FactorKind::Permutation && priority < kLastPriority))
            continue;
          any = true;
          Claim &claim = claims[factor];
          bool extends = axes.size() > claim.axes.size() &&
                         std::equal(claim.axes.begin(), claim.axes.end(), axes.begin());
          bool agrees = axes.size() <= claim.axes.size() &&
                        std::equal(axes.begin(), axes.end(), claim.axes.begin());
          if (extends || (!agrees && weight > claim.weight)) {
            claim.axes = axes;
            claim.weight = weight;
            claim.origin = state.origin[dim];
          } else if (agrees && axes.size() == claim.axes.size()) {
            claim.weight = std::max(claim.weight, weight);
          }
        }
      }
    });
    SmallVector<NodeId, 2> changed;
    if (!any)
      return changed;
    // An axis serves one factor: of two that claim it, that of the larger
    // tensor keeps it, and the other is cut before it.
    for (size_t f = 0; f < claims.size(); ++f)
      for (size_t g = 0; g < claims.size(); ++g) {
        if (f == g || !(setOf(claims[f].axes) & setOf(claims[g].axes)))
          continue;
        Claim &loser = claims[f].weight < claims[g].weight ||
                               (claims[f].weight == claims[g].weight && f > g)
                           ? claims[f]
                           : claims[g];
        const Claim &winner = &loser == &claims[f] ? claims[g] : claims[f];
        AxisSet taken = setOf(winner.axes);
        auto *cut = llvm::find_if(loser.axes, [&](Axis axis) { return contains(taken, axis); });
        loser.axes.erase(cut, loser.axes.end());
      }

    SmallVector<Axes> factorAxes;
    for (const Claim &claim : claims)
      factorAxes.push_back(claim.axes);
    forEachTensor(edge, [&](NodeId node, const TensorFactors &dims) {
      if (!graph.nodes[node].isGenerator && extend(node, dims, rule, factorAxes, claims))
        changed.push_back(node);
    });
    return changed;
  }

  /// Appends to the open dimensions of a tensor what its factors have more.
  template <typename Claims>
  bool extend(NodeId node, const TensorFactors &dims, const ShardingRule &rule,
              ArrayRef<Axes> factorAxes, const Claims &claims) {
    State &state = states[node];
    bool changed = false;
    for (auto [dim, made] : llvm::enumerate(dims)) {
      if (!state.open[dim] || made.empty())
        continue;
      // A dimension of several factors must divide, and a factor may be split
      // only when those major to it are used up.
      Axes want;
      for (int64_t factor : made) {
        int64_t left = rule.factors[factor].size;
        for (Axis axis : factorAxes[factor]) {
          if (made.size() > 1 && left % mesh.size(axis) != 0)
            break;
          want.push_back(axis);
          left /= mesh.size(axis);
        }
        if (left != 1)
          break;
      }
      Axes &have = state.layout.dims[dim];
      if (want.size() <= have.size() || !std::equal(have.begin(), have.end(), want.begin()))
        continue;
      for (size_t i = have.size(); i < want.size(); ++i) {
        if (contains(state.layout.used() | state.forbidden, want[i]))
          break;
        have.push_back(want[i]);
        for (int64_t factor : made)
          if (claims[factor].origin != kNoNode)
            state.origin[dim] = claims[factor].origin;
        changed = true;
      }
    }
    return changed;
  }

  FactorGraph &graph;
  const MeshAxes &mesh;
  SmallVector<State, 0> states;
  int priority = 0; // what takes part now
};

std::string describe(const Node &node) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (node.isPort) {
    func::FuncOp func = node.port.func;
    out << (node.port.isResult ? "result " : "argument ") << node.port.index;
    if (!node.port.name().empty())
      out << " (" << node.port.role() << " '" << node.port.name() << "')";
    out << " of @" << func.getName();
  } else {
    Operation *op = node.value.getDefiningOp();
    out << (op ? op : Value(node.value).getParentBlock()->getParentOp())->getName();
  }
  return text;
}

struct DistPropagatePass : cleave::impl::DistPropagatePassBase<DistPropagatePass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<MeshAxes> mesh = MeshAxes::of(module);
    if (failed(mesh))
      return signalPassFailure();
    FailureOr<FactorGraph> graph = FactorGraph::of(module);
    if (failed(graph))
      return signalPassFailure();
    Propagation propagation(*graph, *mesh);
    propagation.run();

    llvm::MapVector<func::FuncOp, BoundaryAttrs> boundaries;
    for (const auto &[id, node] : llvm::enumerate(graph->nodes)) {
      if (!node.isPort)
        continue;
      func::FuncOp func = node.port.func;
      BoundaryAttrs &attrs = boundaries.try_emplace(func, func).first->second;
      dist::ShardingAttr sharding = mesh->sharding(propagation.layout(id));
      if (node.port.isResult)
        attrs.setResult(node.port.index, kShardingAttrName, sharding);
      else
        attrs.setArgument(node.port.index, kShardingAttrName, sharding);
    }
    for (auto &[func, attrs] : boundaries)
      attrs.apply();
    for (const Edge &edge : graph->edges) {
      if (!edge.op || edge.results.empty())
        continue;
      SmallVector<Attribute> shardings;
      for (NodeId result : edge.results)
        if (result != kNoNode && !graph->nodes[result].isGenerator)
          shardings.push_back(mesh->sharding(propagation.layout(result)));
      if (shardings.size() == edge.op->getNumResults())
        edge.op->setAttr(kShardingAttrName, ArrayAttr::get(&getContext(), shardings));
      else
        edge.op->removeAttr(kShardingAttrName);
    }
    if (remarks)
      report(*graph, *mesh, propagation);
    if (failed(verifyBoundary(module)))
      return signalPassFailure();
  }

  void report(const FactorGraph &graph, const MeshAxes &mesh, const Propagation &propagation) {
    for (const auto &[id, node] : llvm::enumerate(graph.nodes)) {
      const Layout &layout = propagation.layout(id);
      for (auto [dim, axes] : llvm::enumerate(layout.dims)) {
        NodeId origin = propagation.origin(id, dim);
        if (axes.empty() || origin == kNoNode)
          continue;
        Location loc = node.value ? node.value.getLoc() : node.port.loc();
        InFlightDiagnostic remark = emitRemark(loc)
                                    << "dimension " << dim << " of " << describe(node)
                                    << " is split by ";
        llvm::interleaveComma(mesh.list(axes).getAxes(), remark,
                              [&](AxisRefAttr axis) { remark << axis.getName(); });
        if (origin == id)
          remark << ", as asked";
        else
          remark << ", from " << describe(graph.nodes[origin]);
      }
    }
  }
};

} // namespace
