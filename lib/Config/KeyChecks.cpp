// The checks of configuration values; see KeyChecks.h.

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

// A range of numbers: low <= value < high.
struct Range {
  double low, high;
  const char *allowed;
};

template <const Range &range> std::string outside(Field field) {
  double value = 0;
  if (auto *number = std::get_if<int64_t *>(&field))
    value = double(**number);
  else
    value = *std::get<double *>(field);
  if (std::isfinite(value) && value >= range.low && value < range.high)
    return "";
  return std::string("expected ") + range.allowed;
}

constexpr Range fromZero = {0, infinity, "a number of at least 0"};
constexpr Range threadCounts = {0, 1025, "a number from 0 to 1024"};
constexpr Range fromOne = {1, infinity, "a number of at least 1"};
constexpr Range positive = {std::numeric_limits<double>::min(), infinity,
                            "a number above 0"};
constexpr Range belowOne = {0, 1, "a number of at least 0 and below 1"};

std::string wrongPattern(const std::string &pattern) {
  std::string mistake = cleave::checkPattern(pattern);
  return mistake.empty() ? ""
                         : "expected regular expressions (ECMAScript), but '" +
                               pattern + "' is none: " + mistake;
}

} // namespace

static std::string twoSharesWrong(Field field) {
  const std::vector<double> &values = *std::get<std::vector<double> *>(field);
  bool good = values.size() == 2;
  for (double value : values)
    good = good && value >= 0 && value < 1;
  return good ? "" : "expected two numbers of at least 0 and below 1";
}

static std::string notEmptyWrong(Field field) {
  return std::get<std::string *>(field)->empty() ? "expected a name" : "";
}

static std::string namesWrong(Field field) {
  for (const std::string &name : *std::get<StringList *>(field))
    if (name.empty())
      return "expected names that are not empty";
  return "";
}

static std::string architecturesWrong(Field field) {
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

static std::string patternsWrong(Field field) {
  for (const std::string &pattern : *std::get<StringList *>(field))
    if (std::string wrong = wrongPattern(pattern); !wrong.empty())
      return wrong;
  return "";
}

static std::string pairsWrong(Field field) {
  for (const StringList &tied : *std::get<std::vector<StringList> *>(field))
    if (tied.size() < 2)
      return "expected lists of two or more parameter names that are tied";
  return "";
}

static std::string listsWrong(Field field) {
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

static std::string lossWrong(Field field) {
  const std::string &value = *std::get<std::string *>(field);
  if (value == "cross_entropy" || value == "mse" ||
      (value.starts_with("output:") && value.size() > 7))
    return "";
  return "expected \"cross_entropy\", \"mse\" or \"output:NAME\" with the name "
         "of the graph output that is the loss";
}

static std::string noHalfWrong(Field field) {
  if (*std::get<std::string *>(field) != "fp16")
    return "";
  return "fp16 needs loss scaling and is not supported; use bf16 instead";
}

static std::string meshSizesWrong(Field field) {
  for (const auto &[name, size] :
       *std::get<std::map<std::string, int64_t> *>(field))
    if (size < 1 && size != -1)
      return "mesh." + name + " = " + std::to_string(size) +
             ": expected a size of at least 1, or -1 for what is left of the "
             "ranks";
  return "";
}

static std::string dimSizesWrong(Field field) {
  for (const auto &[name, size] :
       *std::get<std::map<std::string, int64_t> *>(field))
    if (size < 1)
      return "dims." + name + " = " + std::to_string(size) +
             ": expected a size of at least 1";
  return "";
}

static std::string inputSourcesWrong(Field field) {
  for (const auto &[name, source] :
       *std::get<std::map<std::string, std::string> *>(field))
    if (source.empty())
      return "data.inputs." + name +
             " is empty: expected ones, zeros, arange or the name of an array";
  return "";
}

static std::string boundValuesWrong(Field field) {
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

static std::string sequenceKindsWrong(Field field) {
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

static std::string shardsWrong(Field field) {
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

const Check checks::atLeastZero = {outside<fromZero>, fromZero.allowed};
const Check checks::threads = {outside<threadCounts>, threadCounts.allowed};
const Check checks::atLeastOne = {outside<fromOne>, fromOne.allowed};
const Check checks::aboveZero = {outside<positive>, positive.allowed};
const Check checks::share = {outside<belowOne>, belowOne.allowed};
const Check checks::twoShares = {twoSharesWrong,
                                 "two numbers of at least 0 and below 1"};
const Check checks::notEmpty = {notEmptyWrong, "a name"};
const Check checks::names = {namesWrong, "names that are not empty"};
const Check checks::architectures = {
    architecturesWrong,
    "different ones of \"sm_80\", \"sm_90\", \"sm_100\"; at least one"};
const Check checks::patterns = {patternsWrong,
                                "regular expressions (ECMAScript)"};
const Check checks::pairs = {pairsWrong,
                             "lists of two or more parameter names"};
const Check checks::lists = {listsWrong,
                             "lists of parameter names, each name once"};
const Check checks::loss = {
    lossWrong, "\"cross_entropy\", \"mse\" or \"output:NAME\" with the name of "
               "the graph output that is the loss"};
const Check checks::noHalf = {noHalfWrong, ""};
const Check checks::meshSizes = {
    meshSizesWrong, "at least 1, or -1 for what is left of the ranks"};
const Check checks::dimSizes = {dimSizesWrong, "at least 1"};
const Check checks::inputSources = {
    inputSourcesWrong, "ones, zeros, arange or the name of an array"};
const Check checks::boundValues = {boundValuesWrong, "FILE.npy or a number"};
const Check checks::sequenceKinds = {
    sequenceKindsWrong,
    "an axis in every entry; kind megatron, ulysses or ring; saved_input shard "
    "or full; plan auto, ring or gather; order zigzag or plain"};
const Check checks::shards = {
    shardsWrong, "match: a regular expression (ECMAScript); dims: as many as "
                 "the view has, or the parameter; view: sizes of at least 1"};
