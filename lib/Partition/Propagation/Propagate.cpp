//===- Propagate.cpp - dist-propagate -------------------------------------===//
//
// Propagates shardings over factors to a fixpoint. It works on a graph outside
// of the IR, and writes the shardings to attributes of the IR at the end.
//
//===----------------------------------------------------------------------===//

#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Partition/Reshard/Reshard.h"
#include "cleave/Partition/Utils/Describe.h"
#include "llvm/ADT/MapVector.h"
#include <map>
#include <set>
#include <tuple>

namespace cleave {
#define GEN_PASS_DEF_DISTPROPAGATEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// The order in which edges of the factor graph (operations, and ties between
/// tensors of equal sharding) begin to propagate: first operations that keep
/// dimensions unchanged, then those that move elements, then contractions, and
/// last those that move tiles between ranks (kLastPriority).
int priorityOf(const Edge &edge) {
  if (!edge.op)
    return 0;
  bool alike = true;
  for (const Factor &factor : edge.rule.factors)
    alike &= factor.kind == FactorKind::PassThrough &&
             factor.combiner == FactorCombiner::None;
  return alike ? 0 : edge.rule.movement ? 1 : 2;
}

constexpr int kLastPriority = 3;

class Propagation {
public:
  Propagation(FactorGraph &graph, const MeshAxes &mesh)
      : graph(graph), mesh(mesh),
        moves(mesh, cost::LinkModel(mesh, LinkClass()), plain()) {
    for (const Node &node : graph.nodes) {
      State state;
      state.layout = Layout(node.type.getRank());
      state.open.assign(node.type.getRank(), true);
      state.origins.resize(node.type.getRank());
      states.push_back(std::move(state));
    }
  }

  void run() {
    std::set<int64_t> rounds;
    for (const Node &node : graph.nodes)
      if (node.requested)
        rounds.insert(node.requested.getPriority());
    if (rounds.empty())
      rounds.insert(0);
    for (int64_t round : rounds) {
      admit(round);
      for (priority = 0; priority <= kLastPriority; ++priority)
        spread();
    }
    unite();
  }

  const Layout &layout(NodeId id) const { return states[id].layout; }
  /// For each axis that splits the dimension, the node that first requested it.
  ArrayRef<NodeId> origins(NodeId id, int64_t dim) const {
    return states[id].origins[dim];
  }

private:
  struct State {
    Layout layout;
    SmallVector<bool> open;
    AxisSet forbidden = 0;
    /// For each axis of each dimension, the node that requested it.
    SmallVector<SmallVector<NodeId, 2>> origins;
  };

  /// All arguments and results of functions with the same name and role (such
  /// as parameter) are one tensor, so they get the axes of the first one. If
  /// their requested shardings differ, the verifier reports it.
  void unite() {
    std::map<std::pair<std::optional<nn::Role>, StringRef>, NodeId> first;
    for (auto [id, node] : llvm::enumerate(graph.nodes)) {
      if (!node.isPort || node.port.name().empty())
        continue;
      NodeId other = first.try_emplace({node.port.role(), node.port.name()}, id)
                         .first->second;
      const Node &like = graph.nodes[other];
      State &state = states[id];
      if (node.type != like.type ||
          bool(node.requested) != bool(like.requested) ||
          (node.requested &&
           node.requested.getDims() != like.requested.getDims()))
        continue;
      state.layout.dims = states[other].layout.dims;
      state.origins = states[other].origins;
    }
  }

  /// Adds the requested shardings of this priority.
  void admit(int64_t round) {
    for (auto [id, node] : llvm::enumerate(graph.nodes)) {
      if (!node.requested || node.requested.getPriority() != round)
        continue;
      State &state = states[id];
      state.layout = mesh.layout(node.requested);
      state.forbidden = setOf(mesh.decompose(node.requested.getReplicated()));
      for (auto [dim, attr] : llvm::enumerate(node.requested.getDims())) {
        state.open[dim] = attr.getIsOpen();
        state.origins[dim].assign(state.layout.dims[dim].size(), id);
      }
    }
  }

  /// All operations and ties propose axes for the current layouts. Proposals
  /// are then applied in an order that is independent of program order.
  void spread() {
    std::vector<unsigned> active;
    for (unsigned edge = 0; edge < graph.edges.size(); ++edge)
      if (priorityOf(graph.edges[edge]) <= priority)
        active.push_back(edge);
    while (!active.empty()) {
      std::vector<Proposal> proposals;
      for (unsigned edge : active)
        visit(graph.edges[edge], proposals);
      llvm::stable_sort(proposals, [](const Proposal &a, const Proposal &b) {
        return std::tie(a.node, b.weight, a.dim, a.axes) <
               std::tie(b.node, a.weight, b.dim, b.axes);
      });
      std::set<unsigned> next;
      for (const Proposal &proposal : proposals)
        if (extend(proposal))
          for (unsigned edge : graph.edgesOf[proposal.node])
            if (priorityOf(graph.edges[edge]) <= priority)
              next.insert(edge);
      active.assign(next.begin(), next.end());
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

  /// The axes by which a tensor of an operation wants to split one factor.
  struct Claim {
    Axes axes;
    /// For each of these axes, the node (tensor) that first requested it.
    SmallVector<NodeId, 2> origins;
    /// The bytes of the largest tensor that wants to split the factor so.
    int64_t weight = 0;
  };
  /// Axes proposed for a dimension, beginning with those it already has.
  struct Proposal {
    NodeId node;
    size_t dim;
    Axes axes;
    SmallVector<NodeId, 2> origins;
    int64_t weight;
  };

  int64_t bytesOf(NodeId node) const {
    return cleave::bytesOf(graph.nodes[node].type);
  }

  static bool isPrefix(ArrayRef<Axis> a, ArrayRef<Axis> b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  }

  bool takesPart(const Factor &factor) const {
    return factor.kind != FactorKind::NeedReplication &&
           (factor.kind != FactorKind::Permutation ||
            priority == kLastPriority);
  }

  /// Returns the bytes that a rank sends if `factor` is split by `axes`, summed
  /// over the tensors of the operation that are now split in another way.
  int64_t bytesMoved(const Edge &edge, int64_t factor,
                     ArrayRef<Axis> axes) const {
    int64_t bytes = 0;
    auto add = [&](NodeId node, const TensorFactors &dims, bool isResult) {
      if (node == kNoNode || graph.nodes[node].isGenerator)
        return;
      const Layout &have = states[node].layout;
      for (auto [dim, made] : llvm::enumerate(dims)) {
        if (!llvm::is_contained(made, factor))
          continue;
        Layout want = have;
        want.dims[dim].clear();
        // Axes that already split other dimensions of the tensor are not
        // available.
        AxisSet taken = want.used();
        Axes before;
        for (auto [other, part] : llvm::zip_equal(
                 made, axesOfFactors(made, edge.rule, have.dims[dim], mesh))) {
          if (other == factor)
            before = part;
          // An axis that moves to this factor leaves the other factors.
          for (Axis axis : other == factor ? axes : ArrayRef<Axis>(part))
            if (!contains(taken, axis) &&
                (other == factor || !llvm::is_contained(axes, axis)))
              want.dims[dim].push_back(axis);
        }
        if (isPrefix(before, axes))
          continue; // The tensor may still get the remaining axes.
        RankedTensorType type = graph.nodes[node].type;
        const Layout &from = isResult ? want : have,
                     &to = isResult ? have : want;
        bytes += sentBytes(
            mesh, type.getShape(), elementBytes(type), from,
            moves.plan(type.getShape(), elementBytes(type), from, to));
      }
    };
    for (auto [node, dims] : llvm::zip_equal(edge.operands, edge.rule.operands))
      add(node, dims, false);
    for (auto [node, dims] : llvm::zip_equal(edge.results, edge.rule.results))
      add(node, dims, true);
    return bytes;
  }

  void visit(const Edge &edge, std::vector<Proposal> &proposals) const {
    const ShardingRule &rule = edge.rule;
    // For each factor, the lists of axes (claims) by which tensors of the
    // operation split it. A list that is a prefix of another one is left out.
    SmallVector<SmallVector<Claim, 1>> candidates(rule.factors.size());
    bool any = false;
    forEachTensor(edge, [&](NodeId node, const TensorFactors &dims) {
      if (graph.nodes[node].isGenerator)
        return;
      const State &state = states[node];
      for (auto [dim, made] : llvm::enumerate(dims)) {
        if (state.layout.dims[dim].empty())
          continue;
        size_t at = 0;
        for (auto [factor, axes] : llvm::zip_equal(
                 made,
                 axesOfFactors(made, rule, state.layout.dims[dim], mesh))) {
          ArrayRef<NodeId> origins =
              ArrayRef<NodeId>(state.origins[dim]).slice(at, axes.size());
          at += axes.size();
          if (axes.empty() || !takesPart(rule.factors[factor]))
            continue;
          any = true;
          note(candidates[factor],
               {axes, SmallVector<NodeId, 2>(origins), bytesOf(node)});
        }
      }
    });
    if (!any)
      return;
    SmallVector<Claim> claims(rule.factors.size());
    for (auto [factor, list] : llvm::enumerate(candidates))
      if (!list.empty())
        claims[factor] = cheapest(edge, factor, list);
    separate(edge, claims);
    forEachTensor(edge, [&](NodeId node, const TensorFactors &dims) {
      if (!graph.nodes[node].isGenerator)
        propose(node, dims, rule, claims, proposals);
    });
  }

  static void note(SmallVectorImpl<Claim> &list, Claim claim) {
    for (Claim &known : list)
      if (isPrefix(claim.axes, known.axes)) {
        if (claim.axes.size() == known.axes.size())
          known.weight = std::max(known.weight, claim.weight);
        return;
      }
    llvm::erase_if(list, [&](const Claim &known) {
      return isPrefix(known.axes, claim.axes);
    });
    list.push_back(std::move(claim));
  }

  /// Several tensors may request different axes for one factor. Chooses the
  /// request that moves the fewest bytes; if several do, that of the largest
  /// tensor, and then the one whose axes come first in the mesh.
  Claim cheapest(const Edge &edge, int64_t factor, ArrayRef<Claim> list) const {
    if (list.size() == 1)
      return list[0];
    const Claim *best = nullptr;
    int64_t bestBytes = 0;
    for (const Claim &claim : list) {
      int64_t bytes = bytesMoved(edge, factor, claim.axes);
      if (best && std::tie(bytes, best->weight, claim.axes) >=
                      std::tie(bestBytes, claim.weight, best->axes))
        continue;
      best = &claim;
      bestBytes = bytes;
    }
    return *best;
  }

  /// Each axis can split only one factor. If two factors want the same axis,
  /// one of them loses this axis and all axes after it: the one for which that
  /// moves fewer bytes.
  void separate(const Edge &edge, MutableArrayRef<Claim> claims) const {
    for (size_t f = 0; f < claims.size(); ++f)
      for (size_t g = f + 1; g < claims.size(); ++g) {
        if (!(setOf(claims[f].axes) & setOf(claims[g].axes)))
          continue;
        auto cut = [&](size_t loser, size_t winner) {
          AxisSet taken = setOf(claims[winner].axes);
          Claim rest = claims[loser];
          rest.axes.truncate(
              llvm::find_if(rest.axes,
                            [&](Axis a) { return contains(taken, a); }) -
              rest.axes.begin());
          rest.origins.truncate(rest.axes.size());
          return rest;
        };
        Claim restOfF = cut(f, g), restOfG = cut(g, f);
        int64_t cutF = bytesMoved(edge, f, restOfF.axes),
                cutG = bytesMoved(edge, g, restOfG.axes);
        if (std::tie(cutF, claims[f].weight) < std::tie(cutG, claims[g].weight))
          claims[f] = std::move(restOfF);
        else
          claims[g] = std::move(restOfG);
      }
  }

  /// For each dimension that may be split further (is open), proposes the axes
  /// by which other tensors of the operation split the dimension's factors.
  void propose(NodeId node, const TensorFactors &dims, const ShardingRule &rule,
               ArrayRef<Claim> claims, std::vector<Proposal> &proposals) const {
    const State &state = states[node];
    for (auto [dim, made] : llvm::enumerate(dims)) {
      if (!state.open[dim] || made.empty())
        continue;
      // A dimension of several factors must divide evenly, and a factor may be
      // split only if the factors before it are split completely.
      Proposal want = {node, dim, {}, {}, 0};
      for (int64_t factor : made) {
        const Claim &claim = claims[factor];
        int64_t left = rule.factors[factor].size;
        for (auto [axis, origin] : llvm::zip_equal(claim.axes, claim.origins)) {
          if (made.size() > 1 && left % mesh.size(axis) != 0)
            break;
          want.axes.push_back(axis);
          want.origins.push_back(origin);
          left /= mesh.size(axis);
        }
        if (!claim.axes.empty())
          want.weight = std::max(want.weight, claim.weight);
        if (left != 1)
          break;
      }
      const Axes &have = state.layout.dims[dim];
      if (have.size() < want.axes.size() && isPrefix(have, want.axes))
        proposals.push_back(std::move(want));
    }
  }

  bool extend(const Proposal &proposal) {
    State &state = states[proposal.node];
    Axes &have = state.layout.dims[proposal.dim];
    if (!isPrefix(have, proposal.axes))
      return false;
    bool changed = false;
    for (size_t i = have.size(); i < proposal.axes.size(); ++i) {
      if (contains(state.layout.used() | state.forbidden, proposal.axes[i]))
        break;
      have.push_back(proposal.axes[i]);
      state.origins[proposal.dim].push_back(proposal.origins[i]);
      changed = true;
    }
    return changed;
  }

  /// Reshards are only estimated here.
  static ReshardOptions plain() {
    ReshardOptions options;
    options.plain = true;
    return options;
  }

  FactorGraph &graph;
  const MeshAxes &mesh;
  mutable ReshardPlanner moves; // It caches plans.
  SmallVector<State, 0> states;
  int priority = 0; // the current priority
};

std::string describe(const Node &node) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (node.isPort) {
    func::FuncOp func = node.port.func;
    out << (node.port.isResult ? "result " : "argument ") << node.port.index;
    if (!node.port.name().empty())
      out << " (" << nn::spell(node.port.role()) << " '" << node.port.name()
          << "')";
    out << " of @" << func.getName();
  } else {
    Operation *op = node.value.getDefiningOp();
    out << (op ? op : Value(node.value).getParentBlock()->getParentOp())
               ->getName();
  }
  return text;
}

struct DistPropagatePass
    : cleave::impl::DistPropagatePassBase<DistPropagatePass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(verifySubAxes(module)))
      return signalPassFailure();
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
        edge.op->setAttr(kShardingAttrName,
                         ArrayAttr::get(&getContext(), shardings));
      else
        edge.op->removeAttr(kShardingAttrName);
    }
    if (remarks)
      report(*graph, *mesh, propagation);
    if (failed(verifyBoundary(module)))
      return signalPassFailure();
  }

  void report(const FactorGraph &graph, const MeshAxes &mesh,
              const Propagation &propagation) {
    for (const auto &[id, node] : llvm::enumerate(graph.nodes)) {
      const Layout &layout = propagation.layout(id);
      for (auto [dim, axes] : llvm::enumerate(layout.dims)) {
        if (axes.empty())
          continue;
        Location loc = node.value ? node.value.getLoc() : node.port.loc();
        InFlightDiagnostic remark = emitRemark(loc)
                                    << "dimension " << dim << " of "
                                    << describe(node) << " is split by ";
        // Neighbouring axes with the same origin are reported together.
        ArrayRef<NodeId> origins = propagation.origins(id, dim);
        for (size_t begin = 0, end; begin < axes.size(); begin = end) {
          for (end = begin;
               end < axes.size() && origins[end] == origins[begin];)
            ++end;
          if (begin)
            remark << "; then by ";
          remark << partition::describe(
              mesh.list(ArrayRef<Axis>(axes).slice(begin, end - begin)));
          if (origins[begin] == id)
            remark << ", as asked";
          else
            remark << ", from " << describe(graph.nodes[origins[begin]]);
        }
      }
    }
  }
};

} // namespace
