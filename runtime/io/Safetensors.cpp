//===- Safetensors.cpp - the format of checkpoints ------------------------===//
#include "cleave/io/Safetensors.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Nesting.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

using Json = nlohmann::ordered_json;

namespace cleave {

namespace {
struct TypeName {
  const char *file;
  const char *ours;
};
} // namespace
static constexpr TypeName typeNames[] = {
    {"F64", "f64"}, {"F32", "f32"}, {"F16", "f16"}, {"BF16", "bf16"},
    {"I64", "i64"}, {"I32", "i32"}, {"I16", "i16"}, {"I8", "i8"},
    {"U64", "u64"}, {"U32", "u32"}, {"U16", "u16"}, {"U8", "u8"},
    {"BOOL", "i1"}};

void writeSafetensors(
    const std::string &path, const std::vector<SafetensorsEntry> &entries,
    const std::function<void(size_t, std::vector<std::byte> &)> &fill) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    size_t left = elementSize(entries[a].dtype);
    size_t right = elementSize(entries[b].dtype);
    return left != right ? left > right : a < b;
  });
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  auto sizeOf = [&](const SafetensorsEntry &entry) {
    uint64_t size = elementSize(entry.dtype);
    for (int64_t dim : entry.shape)
      size *= dim;
    return size;
  };
  for (size_t i : order) {
    const SafetensorsEntry &entry = entries[i];
    const char *dtype = nullptr;
    for (const TypeName &type : typeNames)
      if (entry.dtype == type.ours)
        dtype = type.file;
    uint64_t end = offset + sizeOf(entry);
    header[entry.name] = {{"dtype", dtype},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = jsonText(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t length = text.size();
  OutputFile file(path, 8 + length + offset);
  file.write(&length, 8);
  file.write(text);
  std::vector<std::byte> bytes;
  for (size_t i : order) {
    bytes.resize(sizeOf(entries[i]));
    fill(i, bytes);
    file.write(bytes.data(), bytes.size());
  }
  file.close();
}

SafetensorsReader::SafetensorsReader(const std::string &path) : file(path) {
  auto torn = [&](const std::string &why) {
    return InputError(path + ": not a whole safetensors file: " + why);
  };
  uint64_t length = 0;
  if (file.size() < 8)
    throw torn("it has " + std::to_string(file.size()) + " bytes");
  std::memcpy(&length, file.data(), 8);
  // PyTorch's own files are zips of pickles or, before 2020, pickles.
  std::string_view start(reinterpret_cast<const char *>(file.data()), 4);
  if (length > file.size() - 8 &&
      (start == "PK\3\4" || start.starts_with("\x80\2")))
    throw InputError(path +
                     ": looks like a file of torch.save, which may run code "
                     "when it is read; save the weights with "
                     "safetensors.torch.save_file");
  if (length > file.size() - 8)
    throw torn("its header is cut off");
  const std::byte *data = file.data() + 8 + length;
  const uint64_t dataSize = file.size() - 8 - length;
  const char *text = reinterpret_cast<const char *>(file.data() + 8);
  const bool isPlain = !nestsTooDeep({text, length});
  Json header = isPlain ? Json::parse(text, text + length, nullptr, false)
                        : Json(Json::value_t::discarded);
  if (!header.is_object())
    throw torn("its header is not a JSON object");
  uint64_t last = 0, sum = 0;
  for (const auto &[key, entry] : header.items()) {
    if (key == "__metadata__")
      continue;
    const std::string name = escaped(key); // like a model's tensor names
    ArrayView view;
    uint64_t begin = 0, end = 0;
    try {
      std::string dtype = entry.at("dtype").get<std::string>();
      for (const TypeName &type : typeNames)
        if (dtype == type.file)
          view.dtype = type.ours;
      if (view.dtype.empty())
        throw torn("tensor '" + name + "' has unknown element type " +
                   escaped(dtype));
      view.shape = entry.at("shape").get<std::vector<int64_t>>();
      begin = entry.at("data_offsets").at(0).get<uint64_t>();
      end = entry.at("data_offsets").at(1).get<uint64_t>();
    } catch (const Json::exception &) {
      throw torn("the entry of tensor '" + name + "' is damaged");
    }
    uint64_t size = elementSize(view.dtype);
    for (int64_t dim : view.shape)
      if (dim < 0 || __builtin_mul_overflow(size, uint64_t(dim), &size))
        throw torn("tensor '" + name + "' has an impossible shape");
    if (begin > end || end - begin != size)
      throw torn("tensor '" + name + "' has the wrong number of bytes");
    if (end > dataSize)
      throw torn("tensor '" + name + "' is cut off: expected " +
                 std::to_string(end) + " bytes of data, found " +
                 std::to_string(dataSize));
    view.data = data + begin;
    last = std::max(last, end);
    sum += size;
    if (!tensors.emplace(name, std::move(view)).second)
      throw torn("tensor '" + name + "' is there twice");
  }
  if (last != dataSize)
    throw torn("expected " + std::to_string(last) + " bytes of data, found " +
               std::to_string(dataSize));
  if (sum != dataSize)
    throw torn(std::string("its tensors ") +
               (sum < dataSize ? "leave gaps" : "overlap") + ": they have " +
               std::to_string(sum) + " bytes, in " + std::to_string(dataSize) +
               " bytes of data");
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> result;
  for (const auto &[name, view] : tensors)
    result.push_back(name);
  return result;
}

const ArrayView *SafetensorsReader::find(const std::string &name) const {
  auto it = tensors.find(name);
  return it == tensors.end() ? nullptr : &it->second;
}

} // namespace cleave
