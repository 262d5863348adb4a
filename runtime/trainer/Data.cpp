// Opens the data that a run is trained on.

#include "DataParts.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/File.h"
#include "cleave/io/Npy.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

namespace fs = std::filesystem;

namespace cleave {

namespace {

/// A data set whose training samples come from data.path and whose validation
/// samples come from data.eval_path.
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
  void checkUnchanged() const override {
    training->checkUnchanged();
    validation->checkUnchanged();
  }
  std::string warning() const override { return training->warning(); }
  std::string split() const override { return training->split(); }
  std::string summary(const std::string &use) const override {
    return training->summary(use) + "; " + validation->summary("to validate");
  }

private:
  const Dataset &of(Split split) const {
    return split == Split::training ? *training : *validation;
  }
  std::unique_ptr<Dataset> training, validation;
};

} // namespace

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
                                           std::vector<std::string> unread,
                                           const std::string &path,
                                           const Manifest &manifest,
                                           const Settings &settings) {
  // A one-dimensional array of tokens is one long sequence, which is divided
  // into samples like a text.
  const ManifestInput *tokens = manifest.inputWithRole(InputRole::Tokens);
  if (tokens) {
    auto found =
        arrays.find(tokens->source.empty() ? tokens->name : tokens->source);
    if (found != arrays.end() && found->second.shape.size() == 1) {
      auto owner = std::make_shared<Array>(std::move(found->second));
      return makeTokenDataset(owner, nullptr, *owner,
                              path + ", array '" + found->first + "'", manifest,
                              settings);
    }
  }
  return makeArrayDataset(std::move(arrays), std::move(unread), path, manifest,
                          settings);
}

/// Opens named arrays as a data set. `names` lists the arrays of the file or
/// folder. read(name) reads an array; it is called only for those that an input
/// needs.
static std::unique_ptr<Dataset>
openNamed(const std::vector<std::string> &names,
          const std::function<Array(const std::string &)> &read,
          const std::string &path, const Manifest &manifest,
          const Settings &settings) {
  const std::set<std::string> wanted = wantedArrays(manifest);
  std::map<std::string, Array> arrays;
  std::vector<std::string> unread;
  for (const std::string &name : names)
    if (wanted.count(name))
      arrays[name] = read(name);
    else
      unread.push_back(name);
  std::sort(unread.begin(), unread.end());
  return openArrays(std::move(arrays), std::move(unread), path, manifest,
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

/// A file of tokens without a header could have any integer type, and reading
/// it as a wrong type gives wrong tokens. Returns the end of an error message:
/// the type that was assumed and, if there is one, another type whose values
/// are all within the vocabulary.
static std::string otherDtype(const Manifest &manifest, const MappedFile &file,
                              const std::string &dtype) {
  const ManifestInput *tokens = manifest.inputWithRole(InputRole::Tokens);
  int64_t bound = tokens ? tokens->vocabulary : 0;
  for (const char *other : {"uint16", "uint32", "int64", "uint8"})
    if (bound > 0 && other != dtype && allBelow(dtypeOfBin(other), file, bound))
      return "; it was read as " + dtype + ": data.dtype = \"" + other + "\"?";
  return "; it was read as " + dtype + " (data.dtype)";
}

/// Refuses tokens if every second one is 0: then the file probably has integers
/// of twice the width.
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

/// Shifted labels are tokens.
static void refuseShiftedValues(const Manifest &manifest,
                                const Settings &settings) {
  for (const ManifestInput &input : manifest.inputs)
    if (isShifted(input) && isFloat(input.dtype))
      throw InputError("data.labels = \"next\" makes labels of the tokens "
                       "that come next, but train.loss = \"" +
                       settings.loss +
                       "\" compares with values; name their array in "
                       "data.labels");
}

/// Opens a folder as a data set. Each .npy file in it is an array with the name
/// of the file.
static std::unique_ptr<Dataset> openFolder(const std::string &path,
                                           const Manifest &manifest,
                                           const Settings &settings) {
  std::vector<std::string> names;
  std::map<std::string, fs::path> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".npy") {
      names.push_back(escaped(entry.path().stem().string()));
      files[names.back()] = entry.path();
    }
  if (names.empty())
    throw InputError(path + ": the folder holds no .npy files");
  return openNamed(
      names,
      [&](const std::string &name) { return readNpy(files.at(name).string()); },
      path, manifest, settings);
}

/// Opens a text file as a data set. The bytes of the file are the tokens.
static std::unique_ptr<Dataset>
openText(const std::shared_ptr<MappedFile> &file, const Manifest &manifest,
         const Settings &settings) {
  ArrayView tokens;
  tokens.data = file->data();
  tokens.dtype = "u8";
  tokens.shape = {static_cast<int64_t>(file->size())};
  return makeTokenDataset(file, file.get(), tokens, settings.dataPath, manifest,
                          settings);
}

/// Opens tokens without a header; their type is data.dtype.
static std::unique_ptr<Dataset> openBin(const std::shared_ptr<MappedFile> &file,
                                        const Manifest &manifest,
                                        const Settings &settings) {
  const std::string &path = settings.dataPath;
  ArrayView tokens;
  tokens.data = file->data();
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
    return makeTokenDataset(file, file.get(), tokens, path, manifest, settings);
  } catch (const VocabularyError &error) {
    throw InputError(error.what() +
                     otherDtype(manifest, *file, settings.dataDtype));
  }
}

/// Opens a .npy file with integer tokens: either one long sequence (one
/// dimension) or one sample per row (two dimensions).
static std::unique_ptr<Dataset> openNpy(const std::shared_ptr<MappedFile> &file,
                                        const Manifest &manifest,
                                        const Settings &settings) {
  const std::string &path = settings.dataPath;
  NpyHeader header = parseNpyHeader(file->data(), file->size(), path);
  if (!isInteger(header.dtype))
    throw InputError(path + ": has element type " + header.dtype +
                     ", expected integer tokens");
  if (header.shape.size() == 2 && !header.fortranOrder) {
    // The array has one sample per row, so it is read like a named array.
    const ManifestInput *input = manifest.inputWithRole(InputRole::Tokens);
    std::map<std::string, Array> arrays;
    if (input)
      arrays[input->source.empty() ? input->name : input->source] =
          readNpy(path);
    return openArrays(std::move(arrays), {}, path, manifest, settings);
  }
  if (header.shape.size() != 1)
    throw InputError(path + ": has shape " + shapeToString(header.shape) +
                     ", expected [tokens] or [samples, sequence]");
  ArrayView tokens;
  tokens.dtype = header.dtype;
  tokens.shape = header.shape;
  tokens.data = file->data() + header.dataOffset;
  return makeTokenDataset(file, file.get(), tokens, path, manifest, settings);
}

/// Opens data.path for training and data.eval_path for validation.
static std::unique_ptr<Dataset> openEvaluated(const Manifest &manifest,
                                              const Settings &settings) {
  Settings whole = settings;
  whole.validation = 0;
  whole.evalPath.clear();
  std::unique_ptr<Dataset> training = openDataset(manifest, whole);
  whole.dataPath = settings.evalPath;
  return std::make_unique<EvaluatedDataset>(std::move(training),
                                            openDataset(manifest, whole));
}

std::unique_ptr<Dataset> openDataset(const Manifest &manifest,
                                     const Settings &settings) {
  if (!settings.evalPath.empty())
    return openEvaluated(manifest, settings);
  const std::string &path = settings.dataPath;
  if (path.empty())
    throw InputError("no data to train on; give --data FILE or data.path");
  refuseShiftedValues(manifest, settings);
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return openFolder(path, manifest, settings);
  std::string extension = fs::path(path).extension().string();
  if (extension == ".npz") {
    NpzReader file(path);
    return openNamed(
        file.names(), [&](const std::string &name) { return file.read(name); },
        path, manifest, settings);
  }
  auto file = std::make_shared<MappedFile>(path);
  if (extension == ".txt")
    return openText(file, manifest, settings);
  if (extension == ".bin")
    return openBin(file, manifest, settings);
  if (extension == ".npy")
    return openNpy(file, manifest, settings);
  throw InputError(path + ": unknown kind of data '" + extension +
                   "'; expected .txt (bytes), .bin, .npy, .npz or a folder "
                   "of .npy");
}

} // namespace cleave
