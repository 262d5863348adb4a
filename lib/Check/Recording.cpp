// Records the calls of a check.

#include "cleave/Check/Recording.h"

#include "cleave/io/Digest.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::check;

static std::string writeFile(const std::string &path, llvm::StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (!error) {
    file << bytes;
    file.close();
    error = file.error();
    file.clear_error();
  }
  return error ? path + ": cannot be written: " + error.message() : "";
}

Recording::Calls *Recording::add(llvm::StringRef name, std::string &error) {
  std::string path = folder + "/" + name.str();
  if (std::error_code code = llvm::sys::fs::create_directories(path)) {
    error = path + ": cannot be made: " + code.message();
    return nullptr;
  }
  programs.push_back(std::make_unique<Calls>(*this, path));
  return programs.back().get();
}

int64_t Recording::keep(llvm::StringRef bytes) {
  std::string key = digestOf(bytes) + " " + std::to_string(bytes.size());
  auto [entry, isNew] = kept.try_emplace(key, data.size());
  if (isNew) {
    data += bytes;
    data.resize((data.size() + 7) / 8 * 8); // so that all are aligned
  }
  return entry->second;
}

std::string Recording::write(double epsilon) const {
  for (const std::unique_ptr<Calls> &program : programs)
    if (std::string error =
            writeFile(program->path + "/calls.txt", program->text);
        !error.empty())
      return error;
  std::string text;
  llvm::raw_string_ostream(text)
      << "epsilon " << llvm::formatv("{0:e8}", epsilon) << '\n';
  if (std::string error = writeFile(folder + "/check.txt", text);
      !error.empty())
    return error;
  return writeFile(folder + "/data.bin", data);
}

void Recording::Calls::scatter(const cleave_buffer_info &info,
                               cleave_dtype type, const void *values,
                               int64_t count) {
  int64_t offset = all.keep(llvm::StringRef(static_cast<const char *>(values),
                                            count * cleave_dtype_size(type)));
  llvm::raw_string_ostream(text) << "scatter " << int(type) << ' ' << count
                                 << ' ' << offset << ' ' << info.name << '\n';
}

void Recording::Calls::run(llvm::StringRef action) {
  llvm::raw_string_ostream(text) << "run " << action << '\n';
}

void Recording::Calls::begin(llvm::StringRef what) {
  llvm::raw_string_ostream(text) << "begin " << what << '\n';
}

void Recording::Calls::gather(const cleave_buffer_info &info,
                              llvm::ArrayRef<double> values) {
  constexpr int64_t mostSamples = 32;
  int64_t count = values.size(), samples = std::min(count, mostSamples);
  std::vector<double> some(samples);
  for (int64_t i = 0; i < samples; ++i)
    some[i] = values[i * count / samples];
  int64_t offset = all.keep(llvm::StringRef(
      reinterpret_cast<const char *>(some.data()), samples * sizeof(double)));
  llvm::raw_string_ostream(text)
      << "gather " << int(CLEAVE_F64) << ' ' << count << ' ' << info.role << ' '
      << offset << ' ' << samples << ' ' << info.name << '\n';
}
