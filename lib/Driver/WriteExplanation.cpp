// `cleave explain` as text and as JSON.

#include "cleave/Driver/Explain.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace cleave;

/// 1234567 -> "1.18 MiB".
static std::string size(int64_t bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = bytes;
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  out << llvm::format(unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
  return text;
}

static std::string calls(int64_t count) {
  return std::to_string(count) + (count == 1 ? " call" : " calls");
}

/// Pads to a column.
static std::string column(std::string text, size_t width) {
  if (text.size() < width)
    text.append(width - text.size(), ' ');
  return text + "  ";
}

void cleave::writeExplanation(const Explanation &x, llvm::raw_ostream &out) {
  if (x.batch)
    out << "global batch " << x.batch << ", samples per rank per microbatch "
        << x.perRankMicrobatch << ", microbatches " << x.microbatches;
  if (x.batch && x.sequence)
    out << ", tokens per step " << x.batch * x.sequence;
  out << (x.batch ? "\n" : "") << x.ranks << (x.ranks == 1 ? " rank" : " ranks");
  for (const auto &[name, extent] : x.mesh)
    out << ", " << name << " " << extent;
  const Footprint &memory = x.memory;
  out << "\n\nmemory of a rank\n";
  for (auto [name, bytes] :
       {std::pair<const char *, int64_t>("parameters", memory.parameters),
        {"gradients", memory.gradients},
        {"optimizer", memory.optimizer},
        {"activations", memory.activations},
        {"workspace", memory.workspace},
        {"inputs, outputs, scalars", memory.other},
        {"peak", memory.peak}})
    out << "  " << column(name, 26) << size(bytes) << "\n";
  out << "largest at the peak (@" << memory.action << ", command "
      << memory.command << ")\n";
  for (size_t i = 0; i < std::min<size_t>(8, memory.atPeak.size()); ++i)
    out << "  " << column(memory.atPeak[i].tensor, 40)
        << column(memory.atPeak[i].kind, 11) << size(memory.atPeak[i].bytes)
        << "\n";

  std::map<std::tuple<std::string, std::string, std::string>, CollectiveCost>
      byPurpose;
  int64_t sent = 0;
  for (const CollectiveCost &cost : x.perRank.front().collectives) {
    std::string axes = llvm::join(cost.axes, " ");
    CollectiveCost &sum = byPurpose[{cost.purpose, cost.kind, axes}];
    sum.groupSize = cost.groupSize;
    sum.link = cost.link;
    sum.count += cost.count;
    sum.sentBytes += cost.sentBytes;
    sent += cost.sentBytes;
  }
  out << "\ncommunication of a step, rank 0: " << size(sent) << " sent\n";
  for (const auto &[key, cost] : byPurpose) {
    const auto &[purpose, kind, axes] = key;
    out << "  " << column(purpose, 11) << column(kind, 15)
        << column("over " + axes + " (" + std::to_string(cost.groupSize) +
                      (cost.link == "inter" ? ", inter)" : ")"),
                  22)
        << column(calls(cost.count), 10) << size(cost.sentBytes) << "\n";
  }
  out << "\n"
      << x.perRank.front().flops << " floating-point operations a step\n"
      << x.kernels.size() << " distinct kernels\n";
  for (const auto &[name, count] : x.kernels)
    out << "  " << column(name, 45) << calls(count) << "\n";
  out << x.libraryCalls.size() << " distinct library calls\n";
  for (const auto &[name, count] : x.libraryCalls)
    out << "  " << column(name, 45) << calls(count) << "\n";
  for (const std::string &remark : x.remarks)
    out << "remark: " << remark << "\n";
}

void cleave::writeExplanationJson(const Explanation &x,
                                  llvm::raw_ostream &out) {
  using llvm::json::Array;
  using llvm::json::Object;
  Array mesh, perRank, atPeak, kernels, remarks;
  for (const auto &[name, extent] : x.mesh)
    mesh.push_back(Array{name, extent});
  const Footprint &memory = x.memory;
  for (const RankCost &rank : x.perRank) {
    Array collectives;
    for (const CollectiveCost &cost : rank.collectives) {
      Array axes;
      for (const std::string &axis : cost.axes)
        axes.push_back(axis);
      collectives.push_back(Object{{"kind", cost.kind},
                                   {"axes", std::move(axes)},
                                   {"link", cost.link},
                                   {"group_size", cost.groupSize},
                                   {"purpose", cost.purpose},
                                   {"source", cost.source},
                                   {"dtype", cost.dtype},
                                   {"count", cost.count},
                                   {"payload_bytes", cost.payloadBytes},
                                   {"sent_bytes", cost.sentBytes},
                                   {"received_bytes", cost.receivedBytes},
                                   {"padding_bytes", cost.paddingBytes},
                                   {"exposed_ms", cost.exposedMs}});
    }
    perRank.push_back(
        Object{{"rank", rank.members.front()},
               {"members", Array(rank.members)},
               {"memory", Object{{"parameters", memory.parameters},
                                 {"gradients", memory.gradients},
                                 {"optimizer", memory.optimizer},
                                 {"activations", memory.activations},
                                 {"workspace", memory.workspace},
                                 {"other", memory.other},
                                 {"peak", memory.peak}}},
               {"flops", rank.flops},
               {"collectives", std::move(collectives)}});
  }
  for (const Footprint::Entry &entry : memory.atPeak)
    atPeak.push_back(Object{{"tensor", entry.tensor},
                            {"kind", entry.kind},
                            {"bytes", entry.bytes},
                            {"source", entry.source}});
  for (const auto &[name, count] : x.kernels)
    kernels.push_back(
        Object{{"name", name}, {"calls", count}, {"library", false}});
  for (const auto &[name, count] : x.libraryCalls)
    kernels.push_back(
        Object{{"name", name}, {"calls", count}, {"library", true}});
  for (const std::string &remark : x.remarks)
    remarks.push_back(remark);
  Object top{{"ranks", x.ranks},
             {"mesh", std::move(mesh)},
             {"per_rank", std::move(perRank)},
             {"at_peak", std::move(atPeak)},
             {"kernels", std::move(kernels)},
             {"pipeline", Object{{"stages", 1},
                                 {"microbatches", x.microbatches},
                                 {"schedule", "none"},
                                 {"bubble_fraction", 0.0},
                                 {"peak_in_flight", Array{1}}}},
             {"remarks", std::move(remarks)}};
  if (x.batch)
    top["batch"] = Object{{"global", x.batch},
                          {"per_rank_microbatch", x.perRankMicrobatch},
                          {"microbatches", x.microbatches},
                          {"tokens_per_step", x.batch * x.sequence}};
  out << llvm::formatv("{0:2}", llvm::json::Value(std::move(top))) << "\n";
}
