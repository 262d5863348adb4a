// Writes the report of a check.

#include "cleave/Check/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <cmath>

using namespace cleave;
using namespace cleave::check;

bool CheckReport::pass() const {
  // Also fails if the difference between replicas is NaN, because then the
  // comparison with zero is false.
  return !stopped && replicas.largest == 0 &&
         llvm::all_of(tensors, [](const TensorReport &t) { return t.pass(); });
}

double CheckReport::maxRelError() const {
  double largest = 0;
  for (const TensorReport &tensor : tensors)
    if (tensor.part == Part::Exact && tensor.steps == 1)
      largest = std::max(largest, tensor.relError);
  return largest;
}

namespace {

/// JSON has no infinity, so values that are not finite are written as null.
llvm::json::Value number(double value) {
  return std::isfinite(value) ? llvm::json::Value(value)
                              : llvm::json::Value(nullptr);
}

llvm::json::Array numbers(llvm::ArrayRef<double> values) {
  llvm::json::Array array;
  for (double value : values)
    array.push_back(number(value));
  return array;
}

/// Returns the ratio of an error to its limit. The report lists the tensors in
/// the order of this ratio.
double badness(const TensorReport &tensor) {
  return tensor.limit > 0 ? tensor.relError / tensor.limit : tensor.relError;
}

void row(llvm::raw_ostream &out, const TensorReport &tensor) {
  std::string index;
  for (int64_t i : tensor.worstIndex)
    index += (index.empty() ? "" : ",") + std::to_string(i);
  std::string name = tensor.name;
  if (tensor.steps > 1)
    name += " after " + std::to_string(tensor.steps) + " steps";
  out << llvm::format(
             "  %-8s %-9s %10.2e %10.2e  ", spell(tensor.part).str().c_str(),
             spell(tensor.kind).str().c_str(), tensor.relError, tensor.limit)
      << (tensor.pass() ? "     " : "FAIL ") << name;
  if (!index.empty())
    out << " [" << index << "] on rank " << tensor.rank;
  if (tensor.belowFloor)
    out << " (at the floor)";
  out << "\n";
}

} // namespace

void check::writeJson(const CheckReport &report, llvm::raw_ostream &out) {
  llvm::json::OStream json(out, 1);
  json.object([&] {
    json.attribute("max_rel_error", number(report.maxRelError()));
    json.attribute("tolerance", report.tolerance);
    json.attribute(
        "losses",
        llvm::json::Object{{"sharded", numbers(report.shardedLosses)},
                           {"reference", numbers(report.referenceLosses)}});
    json.attributeArray("tensors", [&] {
      for (const TensorReport &tensor : report.tensors)
        json.object([&] {
          json.attribute("name", tensor.name);
          json.attribute("kind", spell(tensor.kind));
          json.attribute("part", spell(tensor.part));
          json.attribute("rel_error", number(tensor.relError));
          json.attribute("limit", number(tensor.limit));
          json.attribute("worst_index", llvm::json::Array(tensor.worstIndex));
          json.attribute("rank", tensor.rank);
          json.attribute("below_floor", tensor.belowFloor);
          if (tensor.aboveNoiseCap)
            json.attribute("above_noise_cap", true);
          json.attribute("steps", tensor.steps);
          json.attribute("pass", tensor.pass());
        });
    });
    json.attribute("max_replica_difference", number(report.replicas.largest));
    json.attribute("seed", static_cast<int64_t>(report.seed));
    if (!report.fault.empty())
      json.attribute("fault", report.fault);
    if (!report.firstDifference.empty())
      json.attribute("first_difference", report.firstDifference);
    if (!report.notes.empty())
      json.attribute("notes", llvm::json::Array(report.notes));
    json.attribute("pass", report.pass());
  });
  out << "\n";
}

void check::writeText(const CheckReport &report, llvm::raw_ostream &out,
                      size_t rows) {
  if (!report.fault.empty())
    out << "injected fault: " << report.fault << "\n";
  for (const std::string &note : report.notes)
    out << "note: " << note << "\n";
  std::vector<std::pair<double, size_t>> order;
  for (auto [i, tensor] : llvm::enumerate(report.tensors))
    order.push_back({-badness(tensor), i});
  llvm::sort(order);
  std::vector<TensorReport> sorted;
  for (auto [key, i] : order)
    sorted.push_back(report.tensors[i]);
  size_t failing =
      llvm::count_if(sorted, [](const TensorReport &t) { return !t.pass(); });
  size_t shown = std::min(sorted.size(), std::max(rows, failing));
  if (shown)
    out << "  part     kind           error      limit       tensor\n";
  for (size_t i = 0; i < shown; ++i)
    row(out, sorted[i]);
  if (shown < sorted.size())
    out << "  ... and " << sorted.size() - shown
        << " tensors that are nearer\n";
  if (report.replicas.largest != 0)
    out << "replicas of " << report.replicas.name << " differ by "
        << llvm::format("%.2e", report.replicas.largest) << "\n";
  if (!report.firstDifference.empty())
    out << "first difference: " << report.firstDifference << "\n";
  size_t floor = llvm::count_if(
      sorted, [](const TensorReport &t) { return t.belowFloor; });
  out << (report.pass() ? "pass" : "FAIL") << ": " << sorted.size()
      << " comparisons, " << failing << " beyond the limit, " << floor
      << " at the floor; largest error of the exact part "
      << llvm::format("%.2e", report.maxRelError()) << " (tolerance "
      << llvm::format("%.0e", report.tolerance) << "), replicas "
      << (report.replicas.largest == 0 ? "identical" : "different") << ", seed "
      << report.seed << "\n";
}
