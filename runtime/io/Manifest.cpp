//===- Manifest.cpp - a program's folder ----------------------------------===//
//
// Access to a manifest, its fingerprint, and the check that the other files of
// the program's folder match it. ManifestRead.cpp reads the JSON.
//
//===----------------------------------------------------------------------===//
#include "cleave/manifest.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Input.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace cleave {

size_t elementSize(std::string_view dtype) {
  if (dtype == "f64" || dtype == "i64" || dtype == "u64")
    return 8;
  if (dtype == "f32" || dtype == "i32" || dtype == "u32")
    return 4;
  if (dtype == "bf16" || dtype == "f16" || dtype == "i16" || dtype == "u16")
    return 2;
  if (dtype == "i8" || dtype == "u8" || dtype == "i1")
    return 1;
  return 0;
}

bool Manifest::hasAction(std::string_view action) const {
  return std::find(actions.begin(), actions.end(), action) != actions.end();
}

bool Manifest::hasMetric(std::string_view action, std::string_view name) const {
  return std::any_of(metrics.begin(), metrics.end(),
                     [&](const ManifestMetric &metric) {
                       return metric.action == action && metric.name == name;
                     });
}

const ManifestTensor *Manifest::tensor(std::string_view name) const {
  for (const ManifestTensor &t : tensors)
    if (t.name == name)
      return &t;
  return nullptr;
}

static constexpr std::pair<InputRole, const char *> kInputRoles[] = {
    {InputRole::Tokens, "tokens"},
    {InputRole::Labels, "labels"},
    {InputRole::SampleIds, "sample_ids"},
    {InputRole::AttentionMask, "attention_mask"},
    {InputRole::PositionIds, "position_ids"},
    {InputRole::Input, "input"},
    {InputRole::Step, "step"},
    {InputRole::LearningRate, "lr"},
    {InputRole::Seed, "seed"},
    {InputRole::Microbatch, "microbatch"},
};

const char *spell(InputRole role) {
  for (auto [known, text] : kInputRoles)
    if (known == role)
      return text;
  return "";
}

std::optional<InputRole> inputRoleOf(std::string_view text) {
  for (auto [role, known] : kInputRoles)
    if (text == known)
      return role;
  return std::nullopt;
}

const ManifestInput *Manifest::inputWithRole(InputRole role) const {
  for (const ManifestInput &input : inputs)
    if (input.role == role)
      return &input;
  return nullptr;
}

bool Manifest::readsWholeSteps() const {
  for (const ManifestInput &input : inputs)
    if (!input.stepOf.empty())
      return true;
  return false;
}

ManifestTensor partOf(const ManifestTensor &tensor, size_t index) {
  ManifestTensor part = tensor;
  part.name = tensor.parts[index].name;
  part.weight = tensor.parts[index].weight;
  part.shape.erase(part.shape.begin());
  part.parts.clear();
  return part;
}

std::string fingerprintOf(const Manifest &manifest) {
  std::vector<std::string> lines;
  auto add = [&](const ManifestTensor &t) {
    std::string line = t.name + '\n';
    for (int64_t dim : t.shape)
      line += ' ' + std::to_string(dim);
    for (const std::string &alias : t.aliases)
      line += '\n' + alias;
    lines.push_back(std::move(line));
  };
  for (const ManifestTensor &t : manifest.tensors) {
    if (t.kind == "constant")
      continue;
    for (size_t i = 0; i < t.parts.size(); ++i)
      add(partOf(t, i));
    if (t.parts.empty())
      add(t);
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string &line : lines) {
    text += line;
    text += '\0';
  }
  return digestOf(text);
}

/// Describes how a file of the program's folder differs from `expected`; "" if
/// it is unchanged.
static std::string faultOf(const std::filesystem::path &path,
                           const ManifestFile &expected) {
  std::string found, reason;
  if (!readInput(path, found, reason))
    return "cannot be read: " + reason;
  if (static_cast<int64_t>(found.size()) != expected.bytes)
    return "has " + std::to_string(found.size()) + " bytes, expected " +
           std::to_string(expected.bytes);
  if (digestOf(found) != expected.hash)
    return "is not what was written (its checksum is " + digestOf(found) +
           ", expected " + expected.hash + ")";
  return "";
}

bool readManifest(const std::string &folder, Manifest &manifest,
                  std::string &error) {
  try {
    std::filesystem::path path = std::filesystem::path(folder);
    std::string text, reason;
    if (!readInput(path / "manifest.json", text, reason)) {
      error = (path / "manifest.json").string() + ": cannot be read (" +
              reason + "); expected the folder of a compiled program";
      return false;
    }
    if (!manifestFromJson(text, manifest, error)) {
      error = (path / "manifest.json").string() + ": " + error;
      return false;
    }
    for (const ManifestFile &file : manifest.files) {
      // The name of a file must be a plain name without a path.
      std::filesystem::path part =
          path / std::filesystem::path(file.name).filename();
      if (std::string fault = faultOf(part, file); !fault.empty()) {
        error = part.string() + ": " + fault + "; compile the model again";
        return false;
      }
    }
    std::filesystem::path weights(manifest.weightsFolder);
    if (weights.is_relative())
      manifest.weightsFolder = (path / weights).string();
    return true;
  } catch (const std::exception &e) {
    error = folder + ": " + e.what();
    return false;
  }
}

} // namespace cleave
