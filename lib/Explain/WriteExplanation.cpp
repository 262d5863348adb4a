// `cleave explain` as text and as JSON.

#include "cleave/Explain/Explain.h"

#include "llvm/ADT/STLExtras.h"
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

static void writeMemory(const Footprint &memory, llvm::raw_ostream &out) {
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
  std::vector<EqualTensors> largest = largestAtPeak(memory);
  for (const EqualTensors &tensors : llvm::ArrayRef(largest).take_front(8))
    out << "  " << column(tensors.name, 40) << column(tensors.kind, 11)
        << (tensors.count == 1 ? "" : std::to_string(tensors.count) + " x ")
        << size(tensors.bytes) << "\n";
}

static void writeTraffic(const RankCost &rank, llvm::raw_ostream &out) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>,
           CollectiveCost>
      byPurpose;
  int64_t sent = 0;
  for (const CollectiveCost &cost : rank.collectives) {
    std::string axes = llvm::join(cost.axes, " ");
    CollectiveCost &sum = byPurpose[{cost.purpose, cost.kind, axes, cost.link}];
    sum.groupSize = cost.groupSize;
    sum.link = cost.link;
    sum.count += cost.count;
    sum.sentBytes += cost.sentBytes;
    sent += cost.sentBytes;
  }
  out << "\ncommunication of a step, rank " << rank.members.front() << ": "
      << size(sent) << " sent\n";
  for (const auto &[key, cost] : byPurpose) {
    const auto &[purpose, kind, axes, link] = key;
    out << "  " << column(purpose, 11) << column(kind, 15)
        << column("over " + axes + " (" + std::to_string(cost.groupSize) +
                      (cost.link == "inter" ? ", inter)" : ")"),
                  22)
        << column(calls(cost.count), 10) << size(cost.sentBytes) << "\n";
  }
}

static void writeOverlap(const Explanation &x, llvm::raw_ostream &out) {
  auto ms = [](double seconds) {
    // Values below a picosecond are rounding errors of sums and differences, so
    // they are printed as 0.
    return llvm::format("%.3g ms", seconds < 1e-12 ? 0 : 1e3 * seconds);
  };
  for (auto [index, overlap] : llvm::enumerate(x.overlap)) {
    out << (index == 0 ? "\nby the times of " + x.cluster + ", " : "  ")
        << (x.pipeline
                ? "a rank of " + x.pipeline->axis + " " + std::to_string(index)
                : "a rank")
        << " computes for " << ms(overlap.compute) << " and communicates for "
        << ms(overlap.communication) << ", of which "
        << ms(overlap.communication - overlap.exposed) << " while it computes";
    if (x.pipeline)
      out << "; of messages between stages, " << ms(overlap.messages)
          << ", it waits for " << ms(overlap.messagesExposed)
          << ", and for what others compute " << ms(overlap.idle);
    out << "\n";
  }
}

/// Keys of JSON.
static llvm::json::Object keysOf(const Explanation::Overlap &overlap,
                                 bool isPipeline) {
  llvm::json::Object keys{
      {"compute_seconds", overlap.compute},
      {"communication_seconds", overlap.communication},
      {"hidden_seconds", overlap.communication - overlap.exposed},
      {"exposed_seconds", overlap.exposed}};
  if (isPipeline) {
    keys["message_seconds"] = overlap.messages;
    keys["message_exposed_seconds"] = overlap.messagesExposed;
    keys["idle_seconds"] = overlap.idle;
  }
  return keys;
}

static void writeExperts(const Explanation &x, llvm::raw_ostream &out) {
  if (x.experts.empty())
    return;
  out << "\nexperts, of a rank and a microbatch (rows of a rank: at even "
         "loads, "
         "at most)\n";
  for (const ExpertLoad &load : x.experts) {
    out << "  " << column(load.router, 30) << load.expertsPerRank << " of "
        << load.experts << " experts";
    if (load.slotsPerToken)
      out << ", " << load.slotsPerToken << " of a token";
    out << "; " << load.slots << " slots";
    if (load.places)
      out << "; sends " << load.rowsSent() << ", " << load.mostRowsSent()
          << " rows to " << load.ranks - 1
          << (load.ranks == 2 ? " rank" : " ranks") << ", receives "
          << load.rowsSent() << ", " << load.mostRowsReceived() << "; room for "
          << load.places << " of each, " << load.rounds
          << (load.rounds == 1 ? " round" : " rounds");
    if (load.capacity)
      out << "; an expert takes " << load.capacity << " of " << load.capacityOf
          << " slots, of which " << load.mostDropped()
          << " are dropped at most";
    out << "\n";
  }
}

static std::string percent(double fraction) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.2f %%", 100 * fraction);
  return text;
}

void cleave::writeExplanation(const Explanation &x, llvm::raw_ostream &out) {
  if (x.batch)
    out << "global batch " << x.batch << ", samples per rank per microbatch "
        << x.perRankMicrobatch << ", microbatches " << x.microbatches;
  if (x.batch && x.sequence)
    out << ", tokens per step " << x.batch * x.sequence;
  out << (x.batch ? "\n" : "") << x.ranks
      << (x.ranks == 1 ? " rank" : " ranks");
  for (const auto &[name, extent] : x.mesh)
    out << ", " << name << " " << extent;
  out << "\n";
  if (x.pipeline)
    out << "pipeline of " << x.pipeline->stages << " stages, schedule "
        << x.pipeline->schedule << ": idle "
        << percent(x.pipeline->bubbleFraction) << " of the total span, "
        << percent(x.pipeline->bubbleOfIdeal)
        << " of the ideal time (if F, I and W take equally long; "
        << percent(x.pipeline->bubbleByFlops)
        << " of the span by their floating-point operations); "
        << percent(x.pipeline->normFraction)
        << " of the span because the norm of the gradients joins all ranks\n";
  for (auto [index, memory] : llvm::enumerate(x.memory)) {
    out << "\nmemory of a rank";
    if (x.pipeline) {
      out << ", " << x.pipeline->axis << " " << index << " (stages";
      for (int stage : x.pipeline->stagesOfRank[index])
        out << " " << stage;
      out << "; in flight " << x.pipeline->peakInFlight[index] << ")";
    }
    out << "\n";
    writeMemory(memory, out);
  }
  // The first rank of each class.
  for (size_t index = 0; index < x.memory.size(); ++index)
    writeTraffic(*llvm::find_if(x.perRank,
                                [&](const RankCost &rank) {
                                  return rank.rankClass == int64_t(index);
                                }),
                 out);
  writeOverlap(x, out);
  writeExperts(x, out);
  out << "\n";
  for (size_t index = 0; index < x.memory.size(); ++index) {
    const RankCost &rank = *llvm::find_if(x.perRank, [&](const RankCost &rank) {
      return rank.rankClass == int64_t(index);
    });
    out << rank.flops << " floating-point operations a step";
    if (rank.attentionFlops)
      out << ", " << rank.attentionFlops << " of attention";
    if (x.pipeline)
      out << ", rank " << rank.members.front();
    out << "\n";
  }
  out << x.kernels.size() << " distinct kernels\n";
  for (const auto &[name, count] : x.kernels)
    out << "  " << column(name, 45) << calls(count) << "\n";
  out << x.libraryCalls.size() << " distinct library calls\n";
  for (const auto &[name, count] : x.libraryCalls)
    out << "  " << column(name, 45) << calls(count) << "\n";
  for (const std::string &remark : x.remarks)
    out << "remark: " << remark << "\n";
}

using llvm::json::Array;
using llvm::json::Object;

static Array atPeakOf(const Footprint &memory) {
  Array entries;
  for (const Footprint::Entry &entry : memory.atPeak)
    entries.push_back(Object{{"tensor", entry.tensor},
                             {"kind", entry.kind},
                             {"bytes", entry.bytes},
                             {"source", entry.source}});
  return entries;
}

static Object keysOf(const CollectiveCost &cost) {
  return Object{{"kind", cost.kind},
                {"axes", Array(cost.axes)},
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
                {"exposed_ms", cost.exposedMs}};
}

static Object keysOf(const Explanation &x, const RankCost &rank) {
  const Footprint &memory = x.memory[rank.rankClass];
  Array collectives;
  for (const CollectiveCost &cost : rank.collectives)
    collectives.push_back(keysOf(cost));
  Object entry{{"rank", rank.members.front()},
               {"members", Array(rank.members)},
               {"memory", Object{{"parameters", memory.parameters},
                                 {"gradients", memory.gradients},
                                 {"optimizer", memory.optimizer},
                                 {"activations", memory.activations},
                                 {"workspace", memory.workspace},
                                 {"other", memory.other},
                                 {"peak", memory.peak}}},
               {"flops", rank.flops},
               {"attention_flops", rank.attentionFlops},
               {"collectives", std::move(collectives)}};
  if (x.pipeline) {
    entry["stages"] = Array(x.pipeline->stagesOfRank[rank.rankClass]);
    entry["at_peak"] = atPeakOf(memory);
    if (!x.overlap.empty())
      entry["overlap"] = keysOf(x.overlap[rank.rankClass], true);
  }
  return entry;
}

static Array kernelsOf(const Explanation &x) {
  Array kernels;
  for (const auto &[name, count] : x.kernels)
    kernels.push_back(
        Object{{"name", name}, {"calls", count}, {"library", false}});
  for (const auto &[name, count] : x.libraryCalls)
    kernels.push_back(
        Object{{"name", name}, {"calls", count}, {"library", true}});
  return kernels;
}

static Object pipelineOf(const Explanation &x) {
  PipelineCost one; // no pipeline
  const PipelineCost &stages = x.pipeline ? *x.pipeline : one;
  Object pipeline{{"stages", stages.stages},
                  {"microbatches", x.microbatches},
                  {"schedule", stages.schedule},
                  {"bubble_fraction", stages.bubbleFraction},
                  {"peak_in_flight", Array(stages.peakInFlight)}};
  if (x.pipeline) {
    pipeline["bubble_of_ideal"] = stages.bubbleOfIdeal;
    pipeline["bubble_by_flops"] = stages.bubbleByFlops;
    pipeline["norm_fraction"] = stages.normFraction;
  }
  return pipeline;
}

static Array expertsOf(const Explanation &x) {
  Array experts;
  for (const ExpertLoad &load : x.experts)
    experts.push_back(Object{{"router", load.router},
                             {"experts", load.experts},
                             {"slots_per_token", load.slotsPerToken},
                             {"ranks", load.ranks},
                             {"experts_per_rank", load.expertsPerRank},
                             {"slots_per_rank", load.slots},
                             {"places", load.places},
                             {"rounds", load.rounds},
                             {"rows_sent", load.rowsSent()},
                             {"most_rows_sent", load.mostRowsSent()},
                             {"most_rows_received", load.mostRowsReceived()},
                             {"capacity", load.capacity},
                             {"capacity_of", load.capacityOf},
                             {"most_dropped", load.mostDropped()}});
  return experts;
}

void cleave::writeExplanationJson(const Explanation &x,
                                  llvm::raw_ostream &out) {
  Array mesh, perRank;
  for (const auto &[name, extent] : x.mesh)
    mesh.push_back(Array{name, extent});
  for (const RankCost &rank : x.perRank)
    perRank.push_back(keysOf(x, rank));
  Object top{{"ranks", x.ranks},
             {"mesh", std::move(mesh)},
             {"per_rank", std::move(perRank)},
             {"at_peak", atPeakOf(x.memory[x.perRank.front().rankClass])},
             {"kernels", kernelsOf(x)},
             {"pipeline", pipelineOf(x)},
             {"remarks", Array(x.remarks)}};
  if (!x.experts.empty())
    top["experts"] = expertsOf(x);
  if (!x.overlap.empty() && !x.pipeline)
    top["overlap"] = keysOf(x.overlap.front(), false);
  if (x.batch)
    top["batch"] = Object{{"global", x.batch},
                          {"per_rank_microbatch", x.perRankMicrobatch},
                          {"microbatches", x.microbatches},
                          {"tokens_per_step", x.batch * x.sequence}};
  out << llvm::formatv("{0:2}", llvm::json::Value(std::move(top))) << "\n";
}
