// A data set of one long sequence of tokens.

#include "DataParts.h"
#include "SplitRows.h"
#include "cleave/io/Error.h"

#include <algorithm>

namespace cleave {

namespace {

/// Tokens of any integer type, in a file or an array.
class TokenDataset : public Dataset {
public:
  TokenDataset(std::shared_ptr<const void> owner, const MappedFile *file,
               ArrayView tokens, const std::string &path,
               const Manifest &manifest, const Settings &settings)
      : owner(std::move(owner)), file(file), tokens(std::move(tokens)),
        path(path), ignoreIndex(settings.ignoreIndex) {
    const ManifestInput *input = checkInputs(manifest);
    sequence = input->shape[1];
    vocabulary = input->vocabulary;
    for (const ManifestInput &other : manifest.inputs)
      hasLabels |= isShifted(other);
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
    // If the end of the text is held out, the windows of validation begin at
    // its first token.
    bool isEnd = split == Split::validation && !rows.isShuffled();
    int64_t begin = (isEnd ? trainingTokens + sample * sequence
                           : rows.row(split, sample) * sequence) +
                    (isShifted(input) ? 1 : 0);
    const std::byte *from = tokens.data + begin * elementSize(tokens.dtype);
    // The tokens were checked when the file was opened. They are checked again,
    // because the file may have changed since.
    for (int64_t at = 0; file && vocabulary > 0 && at < sequence; ++at)
      if (int64_t id = integerAt(tokens.dtype, from, at);
          id < 0 || id >= vocabulary)
        throw DataError(path + ": has changed since it was opened: token " +
                        std::to_string(begin + at) + " is " +
                        std::to_string(id) + " now, beyond the vocabulary of " +
                        std::to_string(vocabulary));
    convertElements(tokens.dtype, from, input.dtype, out, sequence, path);
    if (file && file->isCut())
      throw DataError(file->change());
  }

  void checkUnchanged() const override {
    if (std::string change = file ? file->change() : ""; !change.empty())
      throw DataError(change);
  }

  /// A text contains only tokens, which are divided into samples. So it cannot
  /// provide an input that is the same for all samples.
  void fillWhole(const ManifestInput &input, std::byte *) const override {
    throw InputError(path + ": holds no array for input '" + input.name + "'");
  }

  std::string warning() const override {
    for (int64_t at = 1; at < trainingTokens; ++at)
      if (!hasLabels || integerAt(tokens.dtype, tokens.data, at) != ignoreIndex)
        return "";
    return allIgnored(path, trainingTokens - 1, ignoreIndex);
  }

  std::string summary(const std::string &use) const override {
    return path + ": " + std::to_string(tokens.elements()) + " tokens, " +
           std::to_string(samples(Split::training)) + " sequences of " +
           std::to_string(sequence) + " " + use + heldOutText(rows);
  }

private:
  /// Returns the input for tokens. Throws InputError if a text cannot provide
  /// the model's inputs.
  const ManifestInput *checkInputs(const Manifest &manifest) const {
    const ManifestInput *input = manifest.inputWithRole(InputRole::Tokens);
    if (!input || input->shape.size() != 2)
      throw InputError(path + ": holds tokens, but the model has no input "
                              "[batch, sequence] of tokens; give named "
                              "arrays (.npz or a folder of .npy)");
    std::string others;
    for (const ManifestInput &other : manifest.inputs)
      if (!isGenerated(other) && other.role != InputRole::Tokens &&
          !isShifted(other) && other.stepOf.empty() &&
          (other.role == InputRole::Input || other.role == InputRole::Labels ||
           other.role == InputRole::AttentionMask ||
           other.role == InputRole::PositionIds))
        others += (others.empty() ? "'" : ", '") + other.name + "'";
    if (!others.empty())
      throw InputError(path + ": holds tokens only, but the model also needs " +
                       others +
                       "; assign them in data.inputs (ones, zeros, arange), or "
                       "give named arrays (.npz or a folder of .npy)");
    for (const ManifestInput &other : manifest.inputs) {
      if (other.role != InputRole::Tokens && !isShifted(other))
        continue;
      requireSamplesFirst(other);
      // Each row of the input is filled with one sequence of tokens, so all
      // these inputs must have the same row length.
      if (other.shape.size() == 2 && other.shape[1] == input->shape[1])
        continue;
      std::string found = "input '" + other.name + "' of shape " +
                          shapeToString(other.shape) + " and '" + input->name +
                          "' of shape " + shapeToString(input->shape);
      if (other.role == InputRole::Tokens)
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
    return input;
  }

  std::shared_ptr<const void> owner;
  const MappedFile *file; // null: they are in memory
  ArrayView tokens;
  std::string path;
  int64_t ignoreIndex;
  bool hasLabels = false; // labels are the next tokens
  int64_t sequence = 0, trainingTokens = 0, vocabulary = 0;
  SplitRows rows; // of windows
};

} // namespace

std::unique_ptr<Dataset>
makeTokenDataset(std::shared_ptr<const void> owner, const MappedFile *file,
                 ArrayView tokens, const std::string &path,
                 const Manifest &manifest, const Settings &settings) {
  return std::make_unique<TokenDataset>(
      std::move(owner), file, std::move(tokens), path, manifest, settings);
}

} // namespace cleave
