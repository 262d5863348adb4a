// Token streams and named arrays.

#include "cleave/trainer/Data.h"
#include "SplitRows.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Suggest.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

namespace fs = std::filesystem;

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

namespace {
struct VocabularyError : InputError {
  using InputError::InputError;
};
} // namespace

static bool shifted(const ManifestInput &input) {
  return input.role == "labels" &&
         (input.source.empty() || input.source == "next");
}

static int64_t elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// The shape of the whole array in the input's dimensions: arrays may spell
/// those of size 1 otherwise. Empty where it does not divide into samples.
static std::vector<int64_t> shapeOfAll(const ManifestInput &input,
                                       const ArrayView &array) {
  std::vector<int64_t> shape = input.shape;
  if (input.batchDim < 0)
    return array.elements() == elementCount(shape) ? shape
                                                   : std::vector<int64_t>();
  shape[input.batchDim] = 1;
  int64_t each = elementCount(shape);
  // Samples that are not outermost have a place of their own.
  bool isOutermost = input.batchDim == 0;
  if (each <= 0 || array.elements() % each != 0 ||
      (!isOutermost && array.shape.size() != shape.size()))
    return {};
  shape[input.batchDim] = array.elements() / each;
  return isOutermost || shape == array.shape ? shape : std::vector<int64_t>();
}

/// The elements of one part of the array, in every sample.
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
    int64_t id = integerAt(array.dtype, array.data, flat);
    if ((id < 0 || id >= lookup.rows) && !(ignored && id == *ignored))
      throw InputError(label + ": the element at " + shapeToString(place) +
                       " is " + std::to_string(id) + ", beyond the " +
                       std::to_string(lookup.rows) + " rows of " +
                       (lookup.table.empty() ? "its table"
                                             : "table '" + lookup.table + "'") +
                       " (input '" + input.name + "')");
    for (size_t dim = sizes.size(); dim-- > 0;) {
      if (++index[dim] < sizes[dim])
        break;
      index[dim] = 0;
    }
  }
}

void checkVocabulary(const ManifestInput &input, const ArrayView &tokens,
                     const std::string &label, const int64_t *ignored) {
  // A stream of tokens has no parts: what reads them checks.
  if (tokens.shape.size() > 1 || input.shape.size() == 1)
    for (const ManifestLookup &lookup : input.lookups)
      checkLookup(input, lookup, tokens, label, ignored);
  if (input.vocabulary <= 0)
    return;
  // Small unsigned types cannot leave a large vocabulary.
  if (tokens.dtype[0] == 'u' && elementSize(tokens.dtype) <= 2 &&
      input.vocabulary >= int64_t(1) << (8 * elementSize(tokens.dtype)))
    return;
  for (int64_t i = 0, n = tokens.elements(); i < n; ++i) {
    int64_t id = integerAt(tokens.dtype, tokens.data, i);
    if ((id < 0 || id >= input.vocabulary) && !(ignored && id == *ignored))
      throw VocabularyError(
          label +
          (input.role == "labels" && !shifted(input)
               ? ": the label at position " + std::to_string(i) + " is " +
                     std::to_string(id) +
                     ", beyond the model's number of classes, "
           : input.role == "tokens" || input.role == "labels"
               ? ": the token at position " + std::to_string(i) + " has id " +
                     std::to_string(id) + ", beyond the model's vocabulary of "
               : ": the element at position " + std::to_string(i) + " is " +
                     std::to_string(id) + ", beyond the rows of its table, ") +
          std::to_string(input.vocabulary) + " (input '" + input.name + "')");
  }
}

/// How many of `total` are held out: the share rounded down, but enough for
/// one sample.
static int64_t heldOut(int64_t total, double share, int64_t least) {
  if (share == 0)
    return 0;
  return std::max(least, static_cast<int64_t>(
                             std::floor(static_cast<double>(total) * share)));
}

/// Samples are read row by row.
static void requireSamplesFirst(const ManifestInput &input) {
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

namespace {

//===----------------------------------------------------------------------===//
// One long sequence of tokens
//===----------------------------------------------------------------------===//

/// Tokens of any integer type; the bytes belong to a file or an array.
class TokenDataset : public Dataset {
public:
  TokenDataset(std::shared_ptr<const void> owner, ArrayView tokens,
               const std::string &path, const Manifest &manifest,
               const Settings &settings)
      : owner(std::move(owner)), tokens(std::move(tokens)), path(path) {
    const ManifestInput *input = manifest.inputWithRole("tokens");
    if (!input || input->shape.size() != 2)
      throw InputError(path + ": holds tokens, but the model has no input "
                              "[batch, sequence] of tokens; give named "
                              "arrays (.npz or a folder of .npy)");
    std::string others;
    for (const ManifestInput &other : manifest.inputs)
      if (!isGenerated(other) && other.role != "tokens" && !shifted(other) &&
          other.stepOf.empty() &&
          (other.role == "input" || other.role == "labels" ||
           other.role == "attention_mask" || other.role == "position_ids"))
        others += (others.empty() ? "'" : ", '") + other.name + "'";
    if (!others.empty())
      throw InputError(path + ": holds tokens only, but the model also needs " +
                       others +
                       "; assign them in data.inputs (ones, zeros, arange), or "
                       "give named arrays (.npz or a folder of .npy)");
    for (const ManifestInput &other : manifest.inputs) {
      if (other.role != "tokens" && !shifted(other))
        continue;
      requireSamplesFirst(other);
      // A row of each is filled with a sequence.
      if (other.shape.size() == 2 && other.shape[1] == input->shape[1])
        continue;
      std::string found = "input '" + other.name + "' of shape " +
                          shapeToString(other.shape) + " and '" + input->name +
                          "' of shape " + shapeToString(input->shape);
      if (other.role == "tokens")
        throw InputError(path +
                         ": holds one sequence of tokens, but the model "
                         "has " +
                         found +
                         "; give named arrays (.npz or "
                         "a folder of .npy)");
      throw InputError(
          path +
          ": labels that are the next tokens need one for each token, "
          "but the model has " +
          found +
          "; give samples with labels as "
          "named arrays (.npz or a folder of .npy) and name the labels' array "
          "in data.labels");
    }
    sequence = input->shape[1];
    const int64_t total = this->tokens.elements();
    if (total < sequence + 1)
      throw InputError(path + ": " + std::to_string(total) +
                       " tokens are fewer than a sequence of " +
                       std::to_string(sequence) +
                       " and its next token; give more text or a smaller "
                       "dims.sequence");
    bool isShuffled = settings.shuffleSplit == "true";
    const int64_t windows = (total - 1) / sequence;
    trainingTokens = total;
    if (isShuffled) {
      rows = SplitRows(windows, heldOut(windows, settings.validation, 1),
                       /*shuffled=*/true, settings.dataSeed);
    } else {
      int64_t validation = heldOut(total, settings.validation, sequence + 1);
      trainingTokens = total - validation;
      int64_t held = std::max<int64_t>(0, (validation - 1) / sequence);
      rows = SplitRows(std::max<int64_t>(0, (trainingTokens - 1) / sequence) +
                           held,
                       held, /*shuffled=*/false, 0);
    }
    if (trainingTokens < sequence + 1 || samples(Split::training) < 1)
      throw InputError(
          path + ": " + std::to_string(total) +
          " tokens are too few to train on and to hold out "
          "data.validation = " +
          std::to_string(settings.validation).substr(0, 5) +
          ": each part needs a sequence of " + std::to_string(sequence) +
          " and its next token; give more text or data.validation = 0");
    checkVocabulary(*input, this->tokens, path, nullptr);
  }

  int64_t samples(Split split) const override { return rows.samples(split); }
  std::string split() const override { return rows.describe(); }

  void fill(const ManifestInput &input, Split split, int64_t sample,
            std::byte *out) const override {
    // Where the end is held out, its windows begin at its first token.
    bool isEnd = split == Split::validation && !rows.isShuffled();
    int64_t begin = (isEnd ? trainingTokens + sample * sequence
                           : rows.row(split, sample) * sequence) +
                    (shifted(input) ? 1 : 0);
    convertElements(tokens.dtype,
                    tokens.data + begin * elementSize(tokens.dtype),
                    input.dtype, out, sequence, path);
  }

  /// Only tokens are read from a text, and they are samples.
  void fillWhole(const ManifestInput &input, std::byte *) const override {
    throw InputError(path + ": holds no array for input '" + input.name + "'");
  }

  std::string summary() const override {
    return path + ": " + std::to_string(tokens.elements()) + " tokens, " +
           std::to_string(samples(Split::training)) + " sequences of " +
           std::to_string(sequence) + " to train on, " +
           std::to_string(samples(Split::validation)) + " held out" +
           (rows.isShuffled() ? " (by data.seed)" : "");
  }

private:
  std::shared_ptr<const void> owner;
  ArrayView tokens;
  std::string path;
  int64_t sequence = 0, trainingTokens = 0;
  SplitRows rows; // of windows
};

//===----------------------------------------------------------------------===//
// Named arrays, a sample per row
//===----------------------------------------------------------------------===//

class ArrayDataset : public Dataset {
public:
  ArrayDataset(std::map<std::string, Array> given, const std::string &path,
               const Manifest &manifest, const Settings &settings)
      : arrays(std::move(given)), path(path), loss(settings.loss),
        ignoreIndex(settings.ignoreIndex) {
    std::string missing, meant;
    for (const ManifestInput &input : manifest.inputs) {
      std::string name = arrayOf(manifest, input);
      if (name.empty() || arrays.count(name) || !input.stepOf.empty())
        continue;
      std::string what =
          "'" + name + "'" +
          (name == input.name ? "" : " (for input '" + input.name + "')");
      if (shifted(input) && !missing.empty())
        continue; // its tokens are named already
      missing += (missing.empty() ? "" : ", ") + what;
      meant += meantBy(manifest, input, name);
    }
    if (!missing.empty())
      throw InputError(path + ": lacks the arrays " + missing +
                       ", which the model's inputs need; it has " + names() +
                       meant);
    for (const ManifestInput &input : manifest.inputs) {
      std::string name = arrayOf(manifest, input);
      if (name.empty())
        continue;
      auto found = arrays.find(name);
      const Array &array = found->second;
      sources[input.name] = &array;
      bool isWhole =
          input.batchDim < 0 && !shifted(input) && input.role != "tokens";
      isReadWhole[name] = isWhole;
      if (isWhole) {
        checkWhole(input, name, array);
        continue;
      }
      if (rows < 0) {
        rows = array.shape.empty() ? 0 : array.shape[0];
        firstName = name;
      }
      check(input, name, array);
    }
    if (rows <= 0)
      throw InputError(path + ": holds no samples");
    int64_t held = heldOut(rows, settings.validation, 1);
    parts = SplitRows(rows, held, settings.shuffleSplit != "false",
                      settings.dataSeed);
    if (held >= rows)
      throw InputError(path + ": " + std::to_string(rows) +
                       " samples are too few to train on and to hold out "
                       "data.validation; give more or data.validation = 0");
  }

  int64_t samples(Split split) const override {
    return parts.samples(split);
  }
  std::string split() const override { return parts.describe(); }

  void fill(const ManifestInput &input, Split split, int64_t sample,
            std::byte *out) const override {
    const Array &array = *sources.at(input.name);
    sample = parts.row(split, sample);
    int64_t width = array.elements() / array.shape[0];
    int64_t count = 1;
    for (size_t d = 1; d < input.shape.size(); ++d)
      count *= input.shape[d];
    const std::byte *row =
        array.bytes.data() + sample * width * elementSize(array.dtype);
    bool shift = shifted(input);
    int64_t given = shift && width == count ? count - 1 : count;
    convertElements(array.dtype, row + (shift ? elementSize(array.dtype) : 0),
                    input.dtype, out, given, path);
    // The last token of a row of exactly S has no next one.
    if (given < count)
      convertElements("i64", reinterpret_cast<const std::byte *>(&ignoreIndex),
                      input.dtype, out + given * elementSize(input.dtype), 1,
                      path);
  }

  void fillWhole(const ManifestInput &input, std::byte *out) const override {
    const Array &array = *sources.at(input.name);
    convertElements(array.dtype, array.bytes.data(), input.dtype, out,
                    array.elements(), path);
  }

  std::string
  firstNonFinite(const std::vector<int64_t> &samples) const override {
    for (const auto &[name, array] : arrays) {
      auto found = isReadWhole.find(name); // no input may read it
      if (found == isReadWhole.end() || !isFloat(array.dtype))
        continue;
      bool isWhole = found->second;
      int64_t width =
          isWhole ? array.elements() : array.elements() / array.shape[0];
      for (int64_t number : isWhole ? std::vector<int64_t>{0} : samples) {
        int64_t sample = isWhole ? 0 : parts.row(Split::training, number);
        const std::byte *row =
            array.bytes.data() + sample * width * elementSize(array.dtype);
        int64_t at = cleave::firstNonFinite(array.dtype, row, width);
        if (at < 0)
          continue;
        double value = 0;
        convertElements(array.dtype, row + at * elementSize(array.dtype), "f64",
                        reinterpret_cast<std::byte *>(&value), 1, path);
        return path + ", array '" + name + "', " +
               (isWhole ? "" : "sample " + std::to_string(sample) + ", ") +
               "element " + std::to_string(at) + ", is " +
               (std::isnan(value) ? "NaN" : "infinite");
      }
    }
    return "";
  }

  std::string summary() const override {
    std::string text = path + ": " + std::to_string(samples(Split::training)) +
                       " samples to train on, " +
                       std::to_string(samples(Split::validation)) +
                       " held out" +
                       (parts.isShuffled() ? " (by data.seed)" : "");
    std::string unread;
    for (const auto &[name, array] : arrays)
      if (!isReadWhole.count(name))
        unread += (unread.empty() ? "'" : ", '") + name + "'";
    return unread.empty() ? text
                          : text + "; not read: " + unread +
                                " (data.labels and data.inputs say what is)";
  }

private:
  /// The array that an input reads, or "" if it reads none.
  static std::string arrayOf(const Manifest &manifest,
                             const ManifestInput &input) {
    if (isGenerated(input))
      return "";
    if (shifted(input)) {
      const ManifestInput *tokens = manifest.inputWithRole("tokens");
      return tokens ? arrayOf(manifest, *tokens) : input.name;
    }
    if (input.role == "tokens" || input.role == "labels" ||
        input.role == "attention_mask" || input.role == "position_ids" ||
        input.role == "input")
      return input.source.empty() ? input.name : input.source;
    return "";
  }

  static bool holdsZerosAndOnes(const Array &array) {
    for (int64_t at = 0; at < array.elements(); ++at) {
      double value = 0;
      if (isFloat(array.dtype))
        convertElements(array.dtype,
                        array.bytes.data() + at * elementSize(array.dtype),
                        "f64", reinterpret_cast<std::byte *>(&value), 1, "");
      else
        value =
            static_cast<double>(integerAt(array.dtype, array.bytes.data(), at));
      if (value != 0 && value != 1)
        return false;
    }
    return true;
  }

  /// "; data.labels = \"label\"?" where an array that nothing reads could be
  /// the one that is missing.
  std::string meantBy(const Manifest &manifest, const ManifestInput &input,
                      const std::string &name) const {
    std::vector<std::string> free;
    for (const auto &[array, content] : arrays)
      if (std::none_of(manifest.inputs.begin(), manifest.inputs.end(),
                       [&](const ManifestInput &other) {
                         return arrayOf(manifest, other) == array;
                       }))
        free.push_back(array);
    auto near = nearest(name, free);
    for (const std::string &other : free)
      if (std::equal(name.begin(), name.end(), other.begin(), other.end(),
                     [](unsigned char a, unsigned char b) {
                       return std::tolower(a) == std::tolower(b);
                     }))
        near = other;
    if (!near && free.size() == 1 && input.role == "labels")
      near = free.front();
    if (!near || input.role == "tokens")
      return "";
    bool isBare = std::all_of(input.name.begin(), input.name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
             c == '-';
    });
    return "; " +
           (input.role == "labels" ? "data.labels"
            : isBare               ? "data.inputs." + input.name
                                   : "data.inputs.\"" + input.name + "\"") +
           " = \"" + *near + "\"?";
  }

  void checkType(const ManifestInput &input, const std::string &label,
                 const Array &array) {
    if (isFloat(array.dtype) != isFloat(input.dtype))
      throw InputError(label + ": has element type " + array.dtype +
                       ", expected " + input.dtype + " for input '" +
                       input.name + "'");
    checkVocabulary(input, array, label,
                    input.role == "labels" ? &ignoreIndex : nullptr);
  }

  void checkWhole(const ManifestInput &input, const std::string &name,
                  const Array &array) {
    std::string label = path + ", array '" + name + "'";
    if (array.shape != input.shape)
      throw InputError(label + ": has shape " + shapeToString(array.shape) +
                       ", expected " + shapeToString(input.shape) +
                       ": input '" + input.name +
                       "' has no batch dimension, all samples share it");
    checkType(input, label, array);
  }

  void check(const ManifestInput &input, const std::string &name,
             const Array &array) {
    std::string label = path + ", array '" + name + "'";
    requireSamplesFirst(input);
    if (input.role == "labels" && !isFloat(input.dtype) &&
        array.shape.size() == input.shape.size() + 1 &&
        array.shape.back() > 1 && array.shape.back() == input.vocabulary &&
        holdsZerosAndOnes(array))
      throw InputError(label + ": has shape " + shapeToString(array.shape) +
                       ", a number for each class; expected the index of the "
                       "class (its argmax over the last dimension)");
    if (input.role == "labels" && isFloat(array.dtype) && !isFloat(input.dtype))
      throw InputError(label + ": holds " + array.dtype + " of shape " +
                       shapeToString(array.shape) +
                       ", but labels of train.loss = \"" + loss +
                       "\" are integers; to fit values: train.loss = "
                       "\"mse\"" +
                       (input.source.empty() || input.source == "next"
                            ? " and data.labels = \"" + name + "\"?"
                            : "?"));
    if (array.shape.empty() || array.shape[0] != rows)
      throw InputError(label + ": has shape " + shapeToString(array.shape) +
                       ", expected " + std::to_string(rows) +
                       " samples as in '" + firstName + "'");
    std::vector<int64_t> row(array.shape.begin() + 1, array.shape.end());
    std::vector<int64_t> want(input.shape.begin() + 1, input.shape.end());
    // Dimensions of size 1 change no element.
    auto plain = [](std::vector<int64_t> shape) {
      std::erase(shape, 1);
      return shape;
    };
    bool fits = plain(row) == plain(want);
    // A row of tokens may bring the token that follows the sequence.
    if (!fits && (input.role == "tokens" || shifted(input)) &&
        row.size() == 1 && want.size() == 1 && row[0] == want[0] + 1)
      fits = true;
    if (!fits) {
      want.insert(want.begin(), rows);
      throw InputError(label + ": has shape " + shapeToString(array.shape) +
                       ", expected " + shapeToString(want) + " for input '" +
                       input.name + "'");
    }
    checkType(input, label, array);
  }

  std::string names() const {
    std::string text;
    for (const auto &[name, array] : arrays)
      text += (text.empty() ? "'" : ", '") + name + "'";
    return text.empty() ? "none" : text;
  }

  std::map<std::string, Array> arrays;
  std::map<std::string, const Array *> sources; // by input
  std::map<std::string, bool> isReadWhole;      // by array; else by samples
  std::string path, loss, firstName;
  int64_t ignoreIndex, rows = -1;
  SplitRows parts;
};

//===----------------------------------------------------------------------===//
// Validation by data of their own
//===----------------------------------------------------------------------===//

class EvaluatedDataset : public Dataset {
public:
  EvaluatedDataset(std::unique_ptr<Dataset> training,
                   std::unique_ptr<Dataset> validation)
      : training(std::move(training)), validation(std::move(validation)) {}

  int64_t samples(Split split) const override {
    return of(split).samples(Split::training);
  }
  void fill(const ManifestInput &input, Split split, int64_t sample,
            std::byte *out) const override {
    of(split).fill(input, Split::training, sample, out);
  }
  void fillWhole(const ManifestInput &input, std::byte *out) const override {
    training->fillWhole(input, out);
  }
  std::string
  firstNonFinite(const std::vector<int64_t> &samples) const override {
    return training->firstNonFinite(samples);
  }
  std::string split() const override { return training->split(); }
  std::string summary() const override {
    return training->summary() + "; validation: " + validation->summary();
  }

private:
  const Dataset &of(Split split) const {
    return split == Split::training ? *training : *validation;
  }
  std::unique_ptr<Dataset> training, validation;
};

} // namespace

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

static std::string dtypeOfBin(const std::string &name) {
  static const std::pair<const char *, const char *> types[] = {
      {"uint8", "u8"}, {"uint16", "u16"}, {"uint32", "u32"}, {"uint64", "u64"},
      {"int8", "i8"},  {"int16", "i16"},  {"int32", "i32"},  {"int64", "i64"}};
  for (const auto &[numpy, ours] : types)
    if (name == numpy)
      return ours;
  throw InputError("data.dtype: expected an integer type such as uint16, "
                   "found '" +
                   name + "'");
}

static std::unique_ptr<Dataset> openArrays(std::map<std::string, Array> arrays,
                                           const std::string &path,
                                           const Manifest &manifest,
                                           const Settings &settings) {
  // One long row of tokens is a text.
  const ManifestInput *tokens = manifest.inputWithRole("tokens");
  if (tokens) {
    auto found =
        arrays.find(tokens->source.empty() ? tokens->name : tokens->source);
    if (found != arrays.end() && found->second.shape.size() == 1) {
      auto owner = std::make_shared<Array>(std::move(found->second));
      return std::make_unique<TokenDataset>(
          owner, *owner, path + ", array '" + found->first + "'", manifest,
          settings);
    }
  }
  return std::make_unique<ArrayDataset>(std::move(arrays), path, manifest,
                                        settings);
}

static bool allBelow(const std::string &dtype, const MappedFile &file,
                     int64_t bound) {
  size_t width = elementSize(dtype), count = file.size() / width;
  if (file.size() % width)
    return false;
  for (size_t i = 0; i < count; ++i) {
    int64_t id = integerAt(dtype, file.data(), static_cast<int64_t>(i));
    if (id < 0 || id >= bound)
      return false;
  }
  return true;
}

/// Tokens without a header are of any type: the wrong one gives wrong tokens.
/// Says which of the others could be meant; "": none.
static std::string otherDtype(const Manifest &manifest, const MappedFile &file,
                              const std::string &dtype) {
  const ManifestInput *tokens = manifest.inputWithRole("tokens");
  int64_t bound = tokens ? tokens->vocabulary : 0;
  for (const char *other : {"uint16", "uint32", "int64", "uint8"})
    if (bound > 0 && other != dtype && allBelow(dtypeOfBin(other), file, bound))
      return "; it was read as " + dtype + ": data.dtype = \"" + other + "\"?";
  return "; it was read as " + dtype + " (data.dtype)";
}

/// Wider integers that are read as narrow ones: every other token is 0.
static void checkWidth(const ArrayView &tokens, const std::string &path,
                       const std::string &dtype) {
  int64_t count = tokens.elements(), zeros = 0, others = 0;
  for (int64_t i = 0; i < count; ++i) {
    bool isZero = integerAt(tokens.dtype, tokens.data, i) == 0;
    (i % 2 ? zeros : others) += i % 2 ? isZero : !isZero;
  }
  if (count >= 64 && zeros == count / 2 && others > count / 8)
    throw InputError(path + ": every second token is 0 when it is read as " +
                     dtype + "; is it of wider integers, data.dtype = " +
                     (dtype == "uint8" ? "\"uint16\"?" : "\"uint32\"?"));
}

std::unique_ptr<Dataset> openDataset(const Manifest &manifest,
                                     const Settings &settings) {
  if (!settings.evalPath.empty()) {
    Settings whole = settings;
    whole.validation = 0;
    whole.evalPath.clear();
    std::unique_ptr<Dataset> training = openDataset(manifest, whole);
    whole.dataPath = settings.evalPath;
    return std::make_unique<EvaluatedDataset>(std::move(training),
                                              openDataset(manifest, whole));
  }
  const std::string &path = settings.dataPath;
  if (path.empty())
    throw InputError("no data to train on; give --data FILE or data.path");
  for (const ManifestInput &input : manifest.inputs)
    if (shifted(input) && isFloat(input.dtype))
      throw InputError("data.labels = \"next\" makes labels of the tokens "
                       "that come next, but train.loss = \"" +
                       settings.loss +
                       "\" compares with values; name their array in "
                       "data.labels");
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    std::map<std::string, Array> arrays;
    for (const fs::directory_entry &entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".npy")
        arrays[entry.path().stem().string()] = readNpy(entry.path().string());
    if (arrays.empty())
      throw InputError(path + ": the folder holds no .npy files");
    return openArrays(std::move(arrays), path, manifest, settings);
  }
  std::string extension = fs::path(path).extension().string();
  if (extension == ".npz") {
    std::map<std::string, Array> arrays;
    for (auto &[name, array] : readNpz(path))
      arrays[name] = std::move(array);
    return openArrays(std::move(arrays), path, manifest, settings);
  }
  auto file = std::make_shared<MappedFile>(path);
  ArrayView tokens;
  tokens.data = file->data();
  if (extension == ".txt") {
    tokens.dtype = "u8";
    tokens.shape = {static_cast<int64_t>(file->size())};
  } else if (extension == ".bin") {
    tokens.dtype = dtypeOfBin(settings.dataDtype);
    size_t width = elementSize(tokens.dtype);
    if (file->size() % width)
      throw InputError(path + ": " + std::to_string(file->size()) +
                       " bytes are no whole number of " + settings.dataDtype +
                       " tokens (data.dtype)");
    tokens.shape = {static_cast<int64_t>(file->size() / width)};
    if (width <= 2)
      checkWidth(tokens, path, settings.dataDtype);
    try {
      return std::make_unique<TokenDataset>(file, tokens, path, manifest,
                                            settings);
    } catch (const VocabularyError &error) {
      throw InputError(error.what() +
                       otherDtype(manifest, *file, settings.dataDtype));
    }
  } else if (extension == ".npy") {
    NpyHeader header = parseNpyHeader(file->data(), file->size(), path);
    if (!isInteger(header.dtype))
      throw InputError(path + ": has element type " + header.dtype +
                       ", expected integer tokens");
    if (header.shape.size() == 2 && !header.fortranOrder) {
      // Samples in rows, as in a named array.
      const ManifestInput *input = manifest.inputWithRole("tokens");
      std::map<std::string, Array> arrays;
      if (input)
        arrays[input->source.empty() ? input->name : input->source] =
            readNpy(path);
      return openArrays(std::move(arrays), path, manifest, settings);
    }
    if (header.shape.size() != 1)
      throw InputError(path + ": has shape " + shapeToString(header.shape) +
                       ", expected [tokens] or [samples, sequence]");
    tokens.dtype = header.dtype;
    tokens.shape = header.shape;
    tokens.data += header.dataOffset;
  } else {
    throw InputError(path + ": unknown kind of data '" + extension +
                     "'; expected .txt (bytes), .bin, .npy, .npz or a folder "
                     "of .npy");
  }
  return std::make_unique<TokenDataset>(file, tokens, path, manifest, settings);
}

} // namespace cleave
