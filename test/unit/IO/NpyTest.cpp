// .npy and .npz files: round trips, exchange with NumPy, and damaged files.
#include "cleave/io/Npy.h"
#include "TestFolder.h"
#include "cleave/io/Error.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace cleave;
using cleave::test::messageOf;
using cleave::test::TestFolder;

namespace {

Array counting(const char *dtype, std::vector<int64_t> shape) {
  Array values = makeArray("i64", shape);
  for (int64_t i = 0; i < values.elements(); ++i)
    values.as<int64_t>()[i] = i;
  Array result = makeArray(dtype, shape);
  if (!isFloat(dtype)) {
    convertElements("i64", values.bytes.data(), dtype, result.bytes.data(),
                    values.elements(), "x");
    return result;
  }
  Array floats = makeArray("f64", shape);
  for (int64_t i = 0; i < values.elements(); ++i)
    floats.as<double>()[i] = static_cast<double>(i);
  convertElements("f64", floats.bytes.data(), dtype, result.bytes.data(),
                  values.elements(), "x");
  return result;
}

bool numpy(const std::string &script) {
  return std::system(
             ("/usr/bin/python3 -c \"import numpy as np; " + script + "\"")
                 .c_str()) == 0;
}

bool haveNumpy() {
  return std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") == 0;
}

TEST(Npz, RoundTrip) {
  TestFolder folder;
  Array a = counting("f32", {2, 3}), b = counting("i64", {5}),
        scalar = counting("f64", {}), empty = counting("f32", {0, 4});
  writeNpz(folder.path("x.npz"),
           {{"a", a}, {"b/c.weight", b}, {"scalar", scalar}, {"empty", empty}});
  EXPECT_EQ(folder.list().size(), 1u) << "a temporary file is left";
  NamedArrays back = readNpz(folder.path("x.npz"));
  ASSERT_EQ(back.size(), 4u);
  EXPECT_EQ(back[0].first, "a");
  EXPECT_EQ(back[0].second.dtype, "f32");
  EXPECT_EQ(back[0].second.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(back[0].second.bytes, a.bytes);
  EXPECT_EQ(back[1].first, "b/c.weight");
  EXPECT_EQ(back[1].second.bytes, b.bytes);
  EXPECT_TRUE(back[2].second.shape.empty());
  EXPECT_EQ(back[3].second.shape, (std::vector<int64_t>{0, 4}));
}

TEST(Npz, NumpyReadsOurs) {
  if (!haveNumpy())
    GTEST_SKIP() << "no NumPy";
  TestFolder folder;
  Array f = counting("f32", {2, 3}), h = counting("bf16", {4}),
        i = counting("i64", {3, 1, 2}), b = counting("i1", {2}),
        s = counting("f64", {});
  writeNpz(folder.path("x.npz"),
           {{"f", f}, {"h", h}, {"i", i}, {"b", b}, {"s", s}});
  EXPECT_TRUE(numpy("z=np.load('" + folder.path("x.npz") +
                    "'); "
                    "assert z['f'].dtype==np.float32; "
                    "assert (z['f']==np.arange(6).reshape(2,3)).all(); "
                    "assert z['h'].dtype==np.float32; "
                    "assert (z['h']==np.arange(4)).all(); "
                    "assert z['i'].dtype==np.int64; "
                    "assert (z['i']==np.arange(6).reshape(3,1,2)).all(); "
                    "assert z['b'].dtype==bool; assert z['s'].shape==(); "
                    "import zipfile; "
                    "assert zipfile.ZipFile('" +
                    folder.path("x.npz") + "').testzip() is None"));
  writeNpy(folder.path("y.npy"), i);
  EXPECT_TRUE(numpy("y=np.load('" + folder.path("y.npy") +
                    "'); assert (y==np.arange(6).reshape(3,1,2)).all()"));
}

TEST(Npz, WeReadNumpys) {
  if (!haveNumpy())
    GTEST_SKIP() << "no NumPy";
  TestFolder folder;
  std::string arrays = "dict(f=np.arange(6,dtype='<f2').reshape(2,3), "
                       "t=np.asfortranarray(np.arange(24).reshape(2,3,4)), "
                       "u=np.arange(4,dtype=np.uint16), "
                       "b=np.array([True,False]), s=np.float32(2.5), "
                       "z=np.zeros((1000,100)))";
  for (const char *save : {"savez", "savez_compressed"}) {
    std::string path = folder.path(std::string(save) + ".npz");
    ASSERT_TRUE(numpy("np." + std::string(save) + "('" + path + "', **" +
                      arrays + ")"));
    NpzReader reader(path);
    Array f = reader.read("f");
    EXPECT_EQ(f.dtype, "f16");
    Array wide = makeArray("f64", f.shape);
    convertElements("f16", f.bytes.data(), "f64", wide.bytes.data(), 6, "f");
    EXPECT_EQ(wide.as<double>()[5], 5);
    Array t = reader.read("t");
    EXPECT_EQ(t.shape, (std::vector<int64_t>{2, 3, 4}));
    for (int64_t i = 0; i < 24; ++i)
      EXPECT_EQ(t.as<int64_t>()[i], i);
    EXPECT_EQ(reader.read("u").dtype, "u16");
    EXPECT_EQ(reader.read("b").dtype, "i1");
    EXPECT_EQ(reader.read("s").as<float>()[0], 2.5f);
    EXPECT_EQ(reader.read("z").bytes.size(), 800000u);
    EXPECT_NE(messageOf<InputError>([&] {
                reader.read("nope");
              }).find("has no array 'nope'"),
              std::string::npos);
  }
  ASSERT_TRUE(numpy("np.save('" + folder.path("big.npy") +
                    "', np.arange(3,dtype='>f4'))"));
  EXPECT_NE(messageOf<InputError>([&] {
              readNpy(folder.path("big.npy"));
            }).find("'>f4' cannot be read"),
            std::string::npos);
}

// Every truncation and every damaged byte either causes an error or is
// harmless; no damage crashes the reader.
TEST(Npz, DamagedFilesAreRefused) {
  TestFolder folder;
  Array a = counting("f32", {4});
  writeNpz(folder.path("x.npz"), {{"a", a}, {"b", a}});
  std::string whole = folder.read("x.npz");
  for (size_t size = 0; size < whole.size(); ++size) {
    folder.write("cut.npz", whole.substr(0, size));
    EXPECT_NE(messageOf<InputError>([&] { readNpz(folder.path("cut.npz")); }),
              "(no error)")
        << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x5a);
    folder.write("damaged.npz", damaged);
    messageOf<InputError>([&] { readNpz(folder.path("damaged.npz")); });
  }
}

TEST(Npy, BadHeadersAreRefused) {
  TestFolder folder;
  Array a = counting("f32", {4});
  writeNpy(folder.path("x.npy"), a);
  std::string whole = folder.read("x.npy");
  for (size_t size = 0; size < whole.size(); ++size) {
    folder.write("cut.npy", whole.substr(0, size));
    EXPECT_NE(messageOf<InputError>([&] {
                readNpy(folder.path("cut.npy"));
              }).find("not a whole .npy file"),
              std::string::npos)
        << size;
  }
  EXPECT_NE(messageOf<InputError>([&] {
              readNpy(folder.path("none.npy"));
            }).find("No such file"),
            std::string::npos);
}

} // namespace
