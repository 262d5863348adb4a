// What values of keys must be; see KeyChecks.h.

#include "KeyChecks.h"

#include "cleave/io/Pattern.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <set>

using namespace cleave;
using namespace cleave::config;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::string inRange(Field field, double low, double high, const char *wanted) {
  double value = 0;
  if (auto *number = std::get_if<int64_t *>(&field))
    value = double(**number);
  else
    value = *std::get<double *>(field);
  if (std::isfinite(value) && value >= low && value < high)
    return "";
  return std::string("expected ") + wanted;
}

std::string wrongPattern(const std::string &pattern) {
  std::string mistake = cleave::checkPattern(pattern);
  return mistake.empty() ? ""
                         : "expected regular expressions (ECMAScript), but '" +
                               pattern + "' is none: " + mistake;
}

} // namespace

std::string checks::atLeastZero(Field field) {
  return inRange(field, 0, infinity, "a number of at least 0");
}
std::string checks::threads(Field field) {
  return inRange(field, 0, 1025, "a number from 0 to 1024");
}
std::string checks::atLeastOne(Field field) {
  return inRange(field, 1, infinity, "a number of at least 1");
}
std::string checks::aboveZero(Field field) {
  return inRange(field, std::numeric_limits<double>::min(), infinity,
                 "a number above 0");
}
std::string checks::share(Field field) {
  return inRange(field, 0, 1, "a number of at least 0 and below 1");
}

std::string checks::twoShares(Field field) {
  const std::vector<double> &values = *std::get<std::vector<double> *>(field);
  bool good = values.size() == 2;
  for (double value : values)
    good = good && value >= 0 && value < 1;
  return good ? "" : "expected two numbers of at least 0 and below 1";
}

std::string checks::notEmpty(Field field) {
  return std::get<std::string *>(field)->empty() ? "expected a name" : "";
}

std::string checks::names(Field field) {
  for (const std::string &name : *std::get<StringList *>(field))
    if (name.empty())
      return "expected names that are not empty";
  return "";
}

std::string checks::architectures(Field field) {
  const StringList &given = *std::get<StringList *>(field);
  bool good = !given.empty();
  for (size_t i = 0; i < given.size(); ++i) {
    good = good &&
           (given[i] == "sm_80" || given[i] == "sm_90" || given[i] == "sm_100");
    for (size_t j = 0; j < i; ++j)
      good = good && given[i] != given[j];
  }
  return good ? ""
              : "expected different ones of \"sm_80\", \"sm_90\", "
                "\"sm_100\"; at least one";
}

std::string checks::patterns(Field field) {
  for (const std::string &pattern : *std::get<StringList *>(field))
    if (std::string wrong = wrongPattern(pattern); !wrong.empty())
      return wrong;
  return "";
}

std::string checks::pairs(Field field) {
  for (const StringList &tied : *std::get<std::vector<StringList> *>(field))
    if (tied.size() < 2)
      return "expected lists of two or more parameter names that are tied";
  return "";
}

std::string checks::lists(Field field) {
  std::set<std::string> seen;
  for (const StringList &list : *std::get<std::vector<StringList> *>(field)) {
    if (list.empty())
      return "expected lists of parameter names that are not empty";
    for (const std::string &name : list)
      if (!seen.insert(name).second)
        return "names " + formatString(name) +
               " twice; a parameter begins to train once";
  }
  return "";
}

std::string checks::loss(Field field) {
  const std::string &value = *std::get<std::string *>(field);
  if (value == "cross_entropy" || value == "mse" ||
      (value.starts_with("output:") && value.size() > 7))
    return "";
  return "expected \"cross_entropy\", \"mse\" or \"output:NAME\" with the name "
         "of the graph output that is the loss";
}

std::string checks::noHalf(Field field) {
  if (*std::get<std::string *>(field) != "fp16")
    return "";
  return "fp16 needs loss scaling and is not supported; use bf16 instead";
}

std::string checks::meshSizes(Field field) {
  for (const auto &[name, size] :
       *std::get<std::map<std::string, int64_t> *>(field))
    if (size < 1 && size != -1)
      return "mesh." + name + " = " + std::to_string(size) +
             ": expected a size of at least 1, or -1 for what is left of the "
             "ranks";
  return "";
}

std::string checks::dimSizes(Field field) {
  for (const auto &[name, size] :
       *std::get<std::map<std::string, int64_t> *>(field))
    if (size < 1)
      return "dims." + name + " = " + std::to_string(size) +
             ": expected a size of at least 1";
  return "";
}

std::string checks::inputSources(Field field) {
  for (const auto &[name, source] :
       *std::get<std::map<std::string, std::string> *>(field))
    if (source.empty())
      return "data.inputs." + name +
             " is empty: expected ones, zeros, arange or the name of an array";
  return "";
}

std::string checks::boundValues(Field field) {
  for (const auto &[name, value] :
       *std::get<std::map<std::string, std::string> *>(field)) {
    double number = 0;
    const char *end = value.data() + value.size();
    bool isNumber = value == "true" || value == "false" ||
                    (std::from_chars(value.data(), end, number).ptr == end &&
                     !value.empty());
    if (!isNumber && !value.ends_with(".npy"))
      return "data.bind." + formatKey(name) + " = " + formatString(value) +
             ": expected FILE.npy or a number";
  }
  return "";
}

std::string checks::sequenceKinds(Field field) {
  for (const SequenceParallelConfig &entry :
       *std::get<std::vector<SequenceParallelConfig> *>(field)) {
    if (entry.kind != "megatron" && entry.kind != "ulysses" &&
        entry.kind != "ring")
      return "kind " + formatString(entry.kind) +
             ": expected megatron, ulysses or ring";
    if (entry.axis.empty())
      return "expected an axis in every entry";
    if (entry.savedInput != "shard" && entry.savedInput != "full")
      return "saved_input " + formatString(entry.savedInput) +
             ": expected shard or full";
    if (entry.plan != "auto" && entry.plan != "ring" && entry.plan != "gather")
      return "plan " + formatString(entry.plan) +
             ": expected auto, ring or gather";
    if (entry.order != "zigzag" && entry.order != "plain")
      return "order " + formatString(entry.order) +
             ": expected zigzag or plain";
  }
  return "";
}

std::string checks::shards(Field field) {
  for (const ShardConfig &entry :
       *std::get<std::vector<ShardConfig> *>(field)) {
    if (entry.match.empty())
      return "every [[shard]] needs `match`, a pattern of parameter names";
    if (std::string wrong = wrongPattern(entry.match); !wrong.empty())
      return wrong;
    if (entry.dims.empty())
      return "[[shard]] for " + formatString(entry.match) +
             " needs `dims`, a list of axes per dimension";
    for (size_t dim = 0; dim < entry.dims.size(); ++dim)
      for (const std::string &axis : entry.dims[dim])
        if (axis.empty() || axis.front() == ':')
          return "[[shard]] for " + formatString(entry.match) +
                 ": dims has an axis without a name, " + formatString(axis) +
                 ", in dimension " + std::to_string(dim) +
                 "; a dimension that is not split has the empty list []";
    for (int64_t size : entry.view)
      if (size < 1)
        return "[[shard]] for " + formatString(entry.match) +
               ": expected view sizes of at least 1";
    if (!entry.view.empty() && entry.view.size() != entry.dims.size())
      return "[[shard]] for " + formatString(entry.match) + " has " +
             std::to_string(entry.dims.size()) + " dims, but a view of " +
             std::to_string(entry.view.size()) + " dimensions";
  }
  return "";
}
