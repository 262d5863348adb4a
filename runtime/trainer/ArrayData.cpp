// Reads named arrays that have one sample per row.

#include "DataParts.h"
#include "SplitRows.h"
#include "cleave/io/Error.h"
#include "cleave/io/Suggest.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace cleave {

namespace {

class ArrayDataset : public Dataset {
public:
  ArrayDataset(std::map<std::string, Array> given,
               std::vector<std::string> others, const std::string &path,
               const Manifest &manifest, const Settings &settings)
      : arrays(std::move(given)), unread(std::move(others)), path(path),
        loss(settings.loss), ignoreIndex(settings.ignoreIndex) {
    std::string missing, meant;
    for (const ManifestInput &input : manifest.inputs) {
      std::string name = arrayOf(manifest, input);
      if (name.empty() || arrays.count(name) || !input.stepOf.empty())
        continue;
      std::string what =
          "'" + name + "'" +
          (name == input.name ? "" : " (for input '" + input.name + "')");
      if (isShifted(input) && !missing.empty())
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
      bool isWhole = input.batchDim < 0 && !isShifted(input) &&
                     input.role != InputRole::Tokens;
      isReadWhole[name] = isWhole;
      checkRange(input, name, array);
      if (input.role == InputRole::Labels)
        labels = {&input, name};
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

  int64_t samples(Split split) const override { return parts.samples(split); }
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
    bool shift = isShifted(input);
    int64_t given = shift && width == count ? count - 1 : count;
    convertElements(array.dtype, row + (shift ? elementSize(array.dtype) : 0),
                    input.dtype, out, given, path);
    // If a row has as many tokens as the sequence, the last position has no
    // next token and is labelled as ignored.
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

  std::string warning() const override {
    auto [input, name] = labels;
    if (!input || isFloat(input->dtype) || input->batchDim < 0)
      return "";
    const Array &array = arrays.at(name);
    int64_t width = array.elements() / array.shape[0], count = 0;
    for (int64_t n = 0, all = samples(Split::training); n < all; ++n) {
      int64_t row = parts.row(Split::training, n);
      // If the labels are the next tokens of a sequence, the first label is the
      // second token of the sequence.
      for (int64_t at = isShifted(*input) ? 1 : 0; at < width; ++at, ++count)
        if (integerAt(array.dtype, array.bytes.data(), row * width + at) !=
            ignoreIndex)
          return "";
    }
    return allIgnored(path + ", array '" + name + "'", count, ignoreIndex);
  }

  std::string summary(const std::string &use) const override {
    std::string text = path + ": " + std::to_string(samples(Split::training)) +
                       " samples " + use + heldOutText(parts);
    std::string list;
    for (const std::string &name : unread)
      list += (list.empty() ? "'" : ", '") + name + "'";
    return list.empty() ? text
                        : text + "; not read: " + list +
                              " (data.labels and data.inputs say what is)";
  }

  /// The array that an input reads, or "" if it reads none.
  static std::string arrayOf(const Manifest &manifest,
                             const ManifestInput &input) {
    if (isGenerated(input))
      return "";
    if (isShifted(input)) {
      const ManifestInput *tokens = manifest.inputWithRole(InputRole::Tokens);
      return tokens ? arrayOf(manifest, *tokens) : input.name;
    }
    if (input.role == InputRole::Tokens || input.role == InputRole::Labels ||
        input.role == InputRole::AttentionMask ||
        input.role == InputRole::PositionIds || input.role == InputRole::Input)
      return input.source.empty() ? input.name : input.source;
    return "";
  }

private:
  /// Throws InputError when the data is opened if a number of the array would
  /// become infinite in the type of the input.
  void checkRange(const ManifestInput &input, const std::string &name,
                  const Array &array) const {
    if (!isFloat(array.dtype) || !isFloat(input.dtype))
      return;
    int64_t at = firstBeyond(array.dtype, array.bytes.data(), array.elements(),
                             input.dtype);
    if (at < 0)
      return;
    double value = 0;
    convertElements(array.dtype,
                    array.bytes.data() + at * elementSize(array.dtype), "f64",
                    reinterpret_cast<std::byte *>(&value), 1, path);
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    int64_t width = std::max<int64_t>(
        1, array.shape.empty() ? 1 : array.elements() / array.shape[0]);
    throw InputError(
        path + ", array '" + name + "', sample " + std::to_string(at / width) +
        ", element " + std::to_string(at % width) + ", is " + text +
        ", which does not fit into " + input.dtype + ", the type of input '" +
        input.name + "'; scale the array, or leave the sample out");
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

  /// For an input whose array is missing: returns a suggestion to read another
  /// array of the data, one that no input reads, such as "; data.labels =
  /// \"label\"?". Returns "" if no such array has a similar name.
  std::string meantBy(const Manifest &manifest, const ManifestInput &input,
                      const std::string &name) const {
    auto near = nearest(name, unread);
    for (const std::string &other : unread)
      if (std::equal(name.begin(), name.end(), other.begin(), other.end(),
                     [](unsigned char a, unsigned char b) {
                       return std::tolower(a) == std::tolower(b);
                     }))
        near = other;
    if (!near && unread.size() == 1 && input.role == InputRole::Labels)
      near = unread.front();
    if (!near || input.role == InputRole::Tokens)
      return "";
    bool isBare = std::all_of(input.name.begin(), input.name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
             c == '-';
    });
    return "; " +
           (input.role == InputRole::Labels ? "data.labels"
            : isBare ? "data.inputs." + input.name
                     : "data.inputs.\"" + input.name + "\"") +
           " = \"" + *near + "\"?";
  }

  void checkType(const ManifestInput &input, const std::string &label,
                 const Array &array) {
    if (isFloat(array.dtype) != isFloat(input.dtype))
      throw InputError(label + ": has element type " + array.dtype +
                       ", expected " + input.dtype + " for input '" +
                       input.name + "'; convert it, in NumPy: " +
                       (isFloat(input.dtype) ? "x.astype(np.float32)"
                                             : "x.astype(np.int64)"));
    checkVocabulary(input, array, label,
                    input.role == InputRole::Labels ? &ignoreIndex : nullptr);
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
    if (input.role == InputRole::Labels && !isFloat(input.dtype) &&
        array.shape.size() == input.shape.size() + 1 &&
        array.shape.back() > 1 && array.shape.back() == input.vocabulary &&
        holdsZerosAndOnes(array))
      throw InputError(label + ": has shape " + shapeToString(array.shape) +
                       ", a number for each class; expected the index of the "
                       "class (its argmax over the last dimension)");
    if (input.role == InputRole::Labels && isFloat(array.dtype) &&
        !isFloat(input.dtype))
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
    // Shapes are compared without dimensions of size 1.
    auto plain = [](std::vector<int64_t> shape) {
      std::erase(shape, 1);
      return shape;
    };
    bool fits = plain(row) == plain(want);
    // Rows of tokens may have one token more than the sequence, which is the
    // label of the last position.
    if (!fits && (input.role == InputRole::Tokens || isShifted(input)) &&
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
    std::set<std::string> all(unread.begin(), unread.end());
    for (const auto &[name, array] : arrays)
      all.insert(name);
    std::string text;
    for (const std::string &name : all)
      text += (text.empty() ? "'" : ", '") + name + "'";
    return text.empty() ? "none" : text;
  }

  std::map<std::string, Array> arrays;
  std::vector<std::string> unread;              // also in the data
  std::map<std::string, const Array *> sources; // by input
  std::map<std::string, bool> isReadWhole;      // by array; else by samples
  /// The input that reads labels, and the name of the array that it reads.
  std::pair<const ManifestInput *, std::string> labels = {nullptr, ""};
  std::string path, loss, firstName;
  int64_t ignoreIndex, rows = -1;
  SplitRows parts;
};

} // namespace

std::set<std::string> wantedArrays(const Manifest &manifest) {
  std::set<std::string> names;
  for (const ManifestInput &input : manifest.inputs)
    if (std::string name = ArrayDataset::arrayOf(manifest, input);
        !name.empty() && input.stepOf.empty())
      names.insert(name);
  return names;
}

std::unique_ptr<Dataset> makeArrayDataset(std::map<std::string, Array> arrays,
                                          std::vector<std::string> unread,
                                          const std::string &path,
                                          const Manifest &manifest,
                                          const Settings &settings) {
  return std::make_unique<ArrayDataset>(std::move(arrays), std::move(unread),
                                        path, manifest, settings);
}

} // namespace cleave
