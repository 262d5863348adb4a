// The safetensors format of checkpoints, damaged checkpoints, and folders that
// are written atomically.
#include "cleave/io/Safetensors.h"
#include "TestFolder.h"
#include "cleave/io/Error.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace cleave;
using cleave::test::messageOf;
using cleave::test::TestFolder;

namespace {

void writeExample(const std::string &path) {
  std::vector<SafetensorsEntry> entries = {
      {"flags", "u8", {3}}, {"w", "f32", {2, 2}}, {"step", "i64", {}}};
  writeSafetensors(path, entries, [&](size_t i, std::vector<std::byte> &out) {
    std::memset(out.data(), static_cast<int>(i + 1), out.size());
  });
}

TEST(Safetensors, LayoutIsTheFormats) {
  TestFolder folder;
  writeExample(folder.path("x.safetensors"));
  std::string bytes = folder.read("x.safetensors");
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + length + 8 + 16 + 3);
  // Tensors with wide elements are stored first, so that all tensors are
  // aligned.
  EXPECT_EQ(bytes.substr(8 + length),
            std::string(8, 3) + std::string(16, 2) + std::string(3, 1));
  EXPECT_NE(bytes.find("\"step\":{\"dtype\":\"I64\",\"shape\":[],"
                       "\"data_offsets\":[0,8]}"),
            std::string::npos);
}

TEST(Safetensors, RoundTrip) {
  TestFolder folder;
  writeExample(folder.path("x.safetensors"));
  SafetensorsReader reader(folder.path("x.safetensors"));
  EXPECT_EQ(reader.names().size(), 3u);
  const ArrayView *w = reader.find("w");
  ASSERT_TRUE(w);
  EXPECT_EQ(w->dtype, "f32");
  EXPECT_EQ(w->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(w->data[0], std::byte(2));
  EXPECT_FALSE(reader.find("v"));
}

TEST(Safetensors, TornFilesAreRefused) {
  TestFolder folder;
  writeExample(folder.path("x.safetensors"));
  std::string whole = folder.read("x.safetensors");
  for (size_t size = 0; size < whole.size(); ++size) {
    folder.write("cut", whole.substr(0, size));
    EXPECT_NE(messageOf<InputError>([&] {
                SafetensorsReader(folder.path("cut"));
              }).find("not a whole safetensors file"),
              std::string::npos)
        << size;
  }
  folder.write("long", whole + "x");
  EXPECT_NE(
      messageOf<InputError>([&] { SafetensorsReader(folder.path("long")); }),
      "(no error)");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x15);
    folder.write("damaged", damaged);
    messageOf<InputError>([&] { SafetensorsReader(folder.path("damaged")); });
  }
}

TEST(Safetensors, TensorsThatLeaveGapsOrOverlapAreRefused) {
  TestFolder folder;
  auto messageOfFile = [&](const std::string &offsets, size_t bytes) {
    std::string header =
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("b":{"dtype":"F32","shape":[1],"data_offsets":)" +
        offsets + "}}";
    uint64_t length = header.size();
    std::string file(reinterpret_cast<const char *>(&length), sizeof length);
    folder.write("x", file + header + std::string(bytes, '\0'));
    return messageOf<InputError>([&] { SafetensorsReader(folder.path("x")); });
  };
  EXPECT_EQ(messageOfFile("[8,12]", 12), "(no error)");
  std::string torn = folder.path("x") + ": not a whole safetensors file: ";
  EXPECT_EQ(messageOfFile("[12,16]", 16),
            torn + "its tensors leave gaps: they have 12 bytes, in 16 bytes of "
                   "data");
  EXPECT_EQ(messageOfFile("[4,8]", 8),
            torn + "its tensors overlap: they have 12 bytes, in 8 bytes of "
                   "data");
  EXPECT_EQ(messageOfFile("[8,12]", 13),
            torn + "expected 12 bytes of data, found 13");
}

TEST(AtomicFolder, AppearsWholeOrNotAtAll) {
  TestFolder folder;
  {
    AtomicFolder writing(folder.path("out"));
    OutputFile file(writing.path() + "/a");
    file.write("1");
    file.close();
    EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
  }
  EXPECT_TRUE(folder.list().empty()) << "an abandoned folder is left";
  for (const char *content : {"1", "2"}) { // the second replaces the first
    AtomicFolder writing(folder.path("out"));
    OutputFile file(writing.path() + "/a");
    file.write(content);
    file.close();
    writing.commit();
    EXPECT_EQ(folder.read("out/a"), content);
    EXPECT_EQ(folder.list().size(), 1u);
  }
}

TEST(OutputFile, AFullDiskIsNamed) {
  // /dev/full is a device on which every write fails.
  EXPECT_EQ(messageOf<RunError>([] {
              OutputFile file("/dev/full");
              file.write("x");
              file.close();
            }),
            "/dev/full: no space left on the device");
  TestFolder folder;
  setWriteLimitForTests(10);
  EXPECT_EQ(messageOf<RunError>([&] { writeExample(folder.path("x")); }),
            folder.path("x") + ": no space left on the device");
  EXPECT_EQ(messageOf<RunError>(
                [&] { writeFileAtomically(folder.path("y"), "more than 10"); }),
            folder.path("y") + ": no space left on the device");
  setWriteLimitForTests(-1);
  EXPECT_FALSE(std::filesystem::exists(folder.path("y")));
  EXPECT_EQ(folder.list().size(),
            1u); // only x, which is not written atomically
}

} // namespace
