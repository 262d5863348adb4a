// Generates inputs that are not read from data (ones, zeros, arange). Also
// checks the indices that are read from data, such as token ids: each must be
// within the model's table that it indexes.

#include "DataParts.h"
#include "cleave/io/Error.h"

#include <algorithm>
#include <cmath>

namespace cleave {

bool isGenerated(const ManifestInput &input) {
  return input.source == "ones" || input.source == "zeros" ||
         input.source == "arange";
}

Array generatedInput(const ManifestInput &input) {
  int64_t count = 1;
  for (int64_t dim : input.shape)
    count *= dim;
  int64_t last = input.shape.empty() ? 1 : input.shape.back();
  Array integers = makeArray("i64", input.shape);
  for (int64_t i = 0; i < count; ++i)
    integers.as<int64_t>()[i] = input.source == "ones"     ? 1
                                : input.source == "arange" ? i % last
                                                           : 0;
  Array result = makeArray(input.dtype, input.shape);
  if (!isFloat(input.dtype)) {
    convertElements("i64", integers.bytes.data(), input.dtype,
                    result.bytes.data(), count, "input '" + input.name + "'");
    return result;
  }
  Array doubles = makeArray("f64", input.shape);
  for (int64_t i = 0; i < count; ++i)
    doubles.as<double>()[i] = static_cast<double>(integers.as<int64_t>()[i]);
  convertElements("f64", doubles.bytes.data(), input.dtype, result.bytes.data(),
                  count, "input '" + input.name + "'");
  return result;
}

bool isShifted(const ManifestInput &input) {
  return input.role == InputRole::Labels &&
         (input.source.empty() || input.source == "next");
}

static int64_t elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// Returns the shape that `array` has when it is seen as the array of all
/// samples: the input's shape, but with the total number of samples in the
/// batch dimension. `array` may have further dimensions of size 1. Returns an
/// empty shape if it cannot be divided into samples.
static std::vector<int64_t> shapeOfAll(const ManifestInput &input,
                                       const ArrayView &array) {
  std::vector<int64_t> shape = input.shape;
  if (input.batchDim < 0)
    return array.elements() == elementCount(shape) ? shape
                                                   : std::vector<int64_t>();
  shape[input.batchDim] = 1;
  int64_t each = elementCount(shape);
  // If samples are not in dimension 0, the array must have exactly the
  // dimensions of the input, as the offset of a sample is computed from them.
  bool isOutermost = input.batchDim == 0;
  if (each <= 0 || array.elements() % each != 0 ||
      (!isOutermost && array.shape.size() != shape.size()))
    return {};
  shape[input.batchDim] = array.elements() / each;
  return isOutermost || shape == array.shape ? shape : std::vector<int64_t>();
}

/// Returns the end of a message about a negative label: how to set
/// data.ignore_index so that labels of this value are not counted. Returns ""
/// if the element is not a negative label.
static std::string howToIgnore(const ManifestInput &input, int64_t label,
                               const int64_t *ignored) {
  if (!ignored || label >= 0 || input.role != InputRole::Labels)
    return "";
  return "; labels that are not counted are data.ignore_index = " +
         std::to_string(*ignored) +
         ": data.ignore_index = " + std::to_string(label) + "?";
}

/// The element as the model sees it after its cast to a narrower integer of
/// `bits` bits.
static int64_t asRead(int64_t element, int64_t bits) {
  if (bits <= 0 || bits >= 64)
    return element;
  int64_t rest = 64 - bits;
  return static_cast<int64_t>(static_cast<uint64_t>(element) << rest) >> rest;
}

/// Checks one element of an array. `place` describes the element's position in
/// messages.
static void checkElement(const ManifestInput &input,
                         const ManifestLookup &lookup, int64_t element,
                         const std::string &place, const std::string &label,
                         const int64_t *ignored) {
  int64_t id = asRead(element, lookup.bits);
  if ((id >= 0 && id < lookup.rows) || (ignored && id == *ignored))
    return;
  throw InputError(
      label + ": the element at " + place + " is " + std::to_string(element) +
      (id == element
           ? ""
           : ", which the model reads as " + std::to_string(id) +
                 " (a cast to " + std::to_string(lookup.bits) + " bits)") +
      ", beyond the " + std::to_string(lookup.rows) + " rows of " +
      (lookup.table.empty() ? "its table" : "table '" + lookup.table + "'") +
      " (input '" + input.name + "')" + howToIgnore(input, id, ignored));
}

/// Checks the elements that one lookup in a table reads, in every sample.
static void checkLookup(const ManifestInput &input,
                        const ManifestLookup &lookup, const ArrayView &array,
                        const std::string &label, const int64_t *ignored) {
  std::vector<int64_t> shape = shapeOfAll(input, array);
  if (shape.empty())
    return; // of another shape, which is an error of its own
  std::vector<int64_t> sizes = lookup.sizes, index(sizes.size(), 0);
  if (input.batchDim >= 0)
    sizes[input.batchDim] = shape[input.batchDim];
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  for (int64_t n = 0; n < count; ++n) {
    std::vector<int64_t> place(sizes.size());
    int64_t flat = 0;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      place[dim] = lookup.offsets[dim] + index[dim] * lookup.strides[dim];
      flat = flat * shape[dim] + place[dim];
    }
    checkElement(input, lookup, integerAt(array.dtype, array.data, flat),
                 shapeToString(place), label, ignored);
    for (size_t dim = sizes.size(); dim-- > 0;) {
      if (++index[dim] < sizes[dim])
        break;
      index[dim] = 0;
    }
  }
}

/// Checks one long sequence of tokens, which is divided into samples only
/// later. A lookup in a table reads certain elements of each sample. Which
/// tokens these will be is not known yet, so the lookup is checked only if it
/// reads every element of a sample, and thus every token.
static void checkStream(const ManifestInput &input,
                        const ManifestLookup &lookup, const ArrayView &tokens,
                        const std::string &label, const int64_t *ignored) {
  if (lookup.sizes != input.shape)
    return;
  for (int64_t i = 0, n = tokens.elements(); i < n; ++i)
    checkElement(input, lookup, integerAt(tokens.dtype, tokens.data, i),
                 "position " + std::to_string(i), label, ignored);
}

void checkVocabulary(const ManifestInput &input, const ArrayView &tokens,
                     const std::string &label, const int64_t *ignored) {
  bool isStream = tokens.shape.size() == 1 && input.shape.size() != 1;
  for (const ManifestLookup &lookup : input.lookups)
    (isStream ? checkStream : checkLookup)(input, lookup, tokens, label,
                                           ignored);
  if (input.vocabulary <= 0)
    return;
  // No value of a narrow unsigned type exceeds a vocabulary that is as large as
  // the range of the type.
  if (tokens.dtype[0] == 'u' && elementSize(tokens.dtype) <= 2 &&
      input.vocabulary >= int64_t(1) << (8 * elementSize(tokens.dtype)))
    return;
  for (int64_t i = 0, n = tokens.elements(); i < n; ++i) {
    int64_t id = integerAt(tokens.dtype, tokens.data, i);
    if ((id < 0 || id >= input.vocabulary) && !(ignored && id == *ignored))
      throw VocabularyError(
          label +
          (input.role == InputRole::Labels && !isShifted(input)
               ? ": the label at position " + std::to_string(i) + " is " +
                     std::to_string(id) +
                     ", beyond the model's number of classes, "
           : input.role == InputRole::Tokens || input.role == InputRole::Labels
               ? ": the token at position " + std::to_string(i) + " has id " +
                     std::to_string(id) + ", beyond the model's vocabulary of "
               : ": the element at position " + std::to_string(i) + " is " +
                     std::to_string(id) + ", beyond the rows of its table, ") +
          std::to_string(input.vocabulary) + " (input '" + input.name + "')" +
          howToIgnore(input, id, ignored));
  }
}

std::string allIgnored(const std::string &label, int64_t count,
                       int64_t ignored) {
  return label + ": all " + std::to_string(count) +
         " labels to train on are data.ignore_index = " +
         std::to_string(ignored) +
         ", which is not counted: no step has a loss, and nothing trains";
}

int64_t heldOut(int64_t total, double share, int64_t least) {
  if (share == 0)
    return 0;
  return std::max(least, static_cast<int64_t>(
                             std::floor(static_cast<double>(total) * share)));
}

void requireSamplesFirst(const ManifestInput &input) {
  if (input.batchDim == 0)
    return;
  std::string where = "no one dimension";
  if (input.batchDim > 0)
    where = "dimension " + std::to_string(input.batchDim);
  throw InputError("input '" + input.name + "' of shape " +
                   shapeToString(input.shape) + " has its samples in " + where +
                   "; training reads samples from dimension 0 only: export the "
                   "model with the batch first");
}

} // namespace cleave
