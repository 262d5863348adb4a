// manifest.json: writing, reading, and rejecting invalid files. Also the
// weights that the manifest names.
#include "cleave/manifest.h"
#include "TestFolder.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/Weights.h"

#include <gtest/gtest.h>
#include <set>

#include <cmath>

using namespace cleave;
using cleave::test::messageOf;
using cleave::test::TestFolder;

namespace {

Manifest example() {
  Manifest m;
  m.model = "tiny";
  m.weightsFolder = "/models";
  m.configJson = R"({"train":{"lr":0.001}})";
  m.mesh = {{"data", 2}, {"tensor", 2}};
  m.ranks = 4;
  m.batch = 8;
  m.microbatches = 2;
  m.sequence = 16;
  m.accumulates = true;
  m.pipelined = true;
  m.actions = {"loss_grad", "update"};
  m.inputs = {
      {"input_ids", "input_ids", InputRole::Tokens, "i64", {4, 16}, 0, "", 257},
      {"lr", "lr", InputRole::LearningRate, "f32", {}, -1, "", 0}};
  m.outputs = {{"logits", "out.logits", "f32", {4, 16, 257}, 0}};
  m.metrics = {{"update", "loss", "metric.loss"}};
  m.routers = {{"gate", "gate.chosen", "gate.taken"}, {"other", "chosen", ""}};
  ManifestTensor w;
  w.name = w.buffer = "w";
  w.shape = {3, 2};
  w.weight = WeightRef{"tiny.onnx", 128, 24, "f32"};
  w.aliases = {"w2"};
  ManifestTensor b;
  b.name = "b";
  b.buffer = "param.b";
  b.kind = "buffer";
  b.shape = {3};
  b.trainable = false;
  b.init = {"normal", 0, 0.02};
  m.tensors = {w, b};
  m.state = {{"w.m", "w", "exp_avg", "zeros"}};
  m.fingerprint = fingerprintOf(m);
  return m;
}

TEST(Manifest, RoundTrip) {
  Manifest m = example();
  std::string text = manifestToJson(m), error;
  Manifest back;
  ASSERT_TRUE(manifestFromJson(text, back, error)) << error;
  EXPECT_EQ(manifestToJson(back), text);
  EXPECT_EQ(back.tensors[0].weight->offset, 128u);
  EXPECT_EQ(back.tensors[1].init.kind, "normal");
  EXPECT_EQ(back.inputs[0].vocabulary, 257);
  EXPECT_EQ(back.metrics[0].buffer, "metric.loss");
  ASSERT_EQ(back.routers.size(), 2u);
  EXPECT_EQ(back.routers[0].name, "gate");
  EXPECT_EQ(back.routers[0].chosen, "gate.chosen");
  EXPECT_EQ(back.routers[0].taken, "gate.taken");
  EXPECT_EQ(back.routers[1].taken, "");
  EXPECT_TRUE(back.accumulates);
  EXPECT_TRUE(back.pipelined);
  EXPECT_EQ(back.configJson, m.configJson);
}

TEST(Manifest, FingerprintDependsOnTheModelOnly) {
  Manifest a = example(), b = example();
  b.mesh = {{"data", 4}};
  std::swap(b.tensors[0], b.tensors[1]);
  b.tensors[0].dtype = "f64";
  b.tensors[1].trainable = false; // frozen
  EXPECT_EQ(fingerprintOf(a), fingerprintOf(b));
  b.tensors[0].shape = {4};
  EXPECT_NE(fingerprintOf(a), fingerprintOf(b));
}

TEST(Manifest, Parts) {
  Manifest m = example();
  ManifestTensor stack = m.tensors[0];
  stack.name = stack.buffer = "e0";
  stack.weight.reset();
  stack.aliases.clear();
  stack.shape = {2, 3};
  stack.parts = {{"e0", WeightRef{"tiny.onnx", 0, 12, "f32"}},
                 {"e1", WeightRef{"tiny.onnx", 64, 12, "f32"}}};
  m.tensors.push_back(stack);
  std::string text = manifestToJson(m), error;
  Manifest back;
  ASSERT_TRUE(manifestFromJson(text, back, error)) << error;
  EXPECT_EQ(manifestToJson(back), text);
  ManifestTensor part = partOf(back.tensors.back(), 1);
  EXPECT_EQ(part.name, "e1");
  EXPECT_EQ(part.shape, std::vector<int64_t>{3});
  EXPECT_EQ(part.weight->offset, 64u);
  EXPECT_TRUE(part.parts.empty());

  // Checkpoints store the parts of a stacked tensor under their own names, so
  // stacking does not change the fingerprint.
  Manifest apart = example();
  for (size_t i : {1, 0})
    apart.tensors.push_back(partOf(stack, i));
  EXPECT_EQ(fingerprintOf(m), fingerprintOf(apart));

  m.tensors.back().parts[1].weight->length = 24;
  EXPECT_FALSE(manifestFromJson(manifestToJson(m), back, error));
  EXPECT_EQ(error, "key 'tensors[2].parts[1].weight.length': expected 12 "
                   "bytes, found 24");
  m.tensors.back().parts.pop_back();
  EXPECT_FALSE(manifestFromJson(manifestToJson(m), back, error));
  EXPECT_EQ(error, "key 'tensors[2].parts': expected 2 parts, found 1");
}

std::string refusal(const std::string &from, const std::string &to) {
  std::string text = manifestToJson(example()), error;
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  Manifest m;
  EXPECT_FALSE(manifestFromJson(text, m, error)) << to;
  return error;
}

TEST(Manifest, RolesOfInputsAreSpelledApart) {
  std::set<std::string> spelled;
  for (int i = 0; i <= int(InputRole::Microbatch); ++i) {
    spelled.insert(spell(InputRole(i)));
    EXPECT_EQ(inputRoleOf(spell(InputRole(i))), InputRole(i)) << i;
  }
  EXPECT_EQ(spelled.size(), size_t(InputRole::Microbatch) + 1);
  EXPECT_EQ(spelled.count(""), 0u);
}

TEST(Manifest, MistakesNameTheKey) {
  EXPECT_EQ(refusal("\"version\": 2", "\"version\": 1"),
            "key 'version': expected 2, found 1; compile the model again");
  EXPECT_EQ(refusal("\"ranks\": 4", "\"ranks\": 3"),
            "key 'ranks': expected the product of the mesh's axes, 4, found 3");
  EXPECT_EQ(refusal("\"length\": 24", "\"length\": 23"),
            "key 'tensors[0].weight.length': expected 24 bytes, found 23");
  EXPECT_EQ(refusal("\"role\": \"tokens\"", "\"role\": \"toks\""),
            "key 'inputs[0].role': expected a known role, found 'toks'");
  EXPECT_EQ(refusal("\"parameter\": \"w\"", "\"parameter\": \"v\""),
            "key 'state[0].parameter': expected the name of a tensor, found "
            "'v'");
  std::string error;
  Manifest m;
  EXPECT_FALSE(manifestFromJson("{", m, error));
  EXPECT_EQ(error, "is damaged at byte 2; compile the model again");
  EXPECT_FALSE(manifestFromJson("[]", m, error));
  EXPECT_FALSE(readManifest("/nonexistent", m, error));
  EXPECT_NE(error.find("expected the folder of a compiled program"),
            std::string::npos);
}

TEST(Digest, OfPieces) {
  // The digest of a long file is the FNV-1a hash of the digests of its pieces,
  // here five whole pieces and a remainder.
  const size_t piece = size_t(1) << 20;
  std::string bytes, digests;
  for (size_t i = 0; i < 5 * piece + 7; ++i)
    bytes += static_cast<char>(i * i >> 7);
  for (size_t at = 0; at < bytes.size(); at += piece)
    digests += digestOf(bytes.substr(at, piece));
  EXPECT_EQ(digests.size(), 6u * 16);
  EXPECT_EQ(digestOfPieces(bytes), digestOf(digests));
  EXPECT_EQ(digestOfPieces(""), digestOf(""));
  for (size_t at :
       {size_t(0), piece, 4 * piece - 1, 4 * piece, 5 * piece + 6}) {
    std::string other = bytes;
    other[at] ^= 1;
    EXPECT_NE(digestOfPieces(other), digestOfPieces(bytes)) << at;
  }
}

TEST(Weights, BytesOfTheFile) {
  TestFolder folder;
  float values[] = {1, 2, 3, 4, 5, 6};
  std::string bytes(128, 'x');
  bytes.append(reinterpret_cast<const char *>(values), sizeof values);
  folder.write("tiny.onnx", bytes);
  WeightFiles files(folder.path());
  ManifestTensor w = example().tensors[0];
  w.dtype = "f64";
  Array value = initialValue(w, files, 0);
  EXPECT_EQ(value.as<double>()[5], 6);

  folder.write("tiny2.onnx", bytes.substr(0, bytes.size() - 1));
  w.weight->file = "tiny2.onnx";
  EXPECT_EQ(messageOf<InputError>([&] { files.view(w); }),
            "weights of 'w': " + folder.path("tiny2.onnx") +
                " is too short: expected 24 bytes at offset 128, found a file "
                "of 151");
  w.weight->file = "none.onnx";
  EXPECT_NE(messageOf<InputError>([&] { files.view(w); }).find("No such file"),
            std::string::npos);
  for (const char *outside : {"../x", "/etc/passwd", "a/../../x"}) {
    w.weight->file = outside;
    EXPECT_NE(messageOf<InputError>([&] {
                files.view(w);
              }).find("is outside the model's folder"),
              std::string::npos);
  }
}

TEST(Weights, DrawnValuesHaveTheirDistribution) {
  WeightFiles files("/");
  ManifestTensor t;
  t.name = "t";
  t.shape = {100000};
  t.init = {"normal", 1, 0.5};
  Array a = initialValue(t, files, 7);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    sum += a.as<float>()[i];
    squares += std::pow(a.as<float>()[i] - 1, 2);
  }
  EXPECT_NEAR(sum / 1e5, 1, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.5, 0.01);
  EXPECT_EQ(initialValue(t, files, 7).bytes, a.bytes);
  EXPECT_NE(initialValue(t, files, 8).bytes, a.bytes);
  t.name = "u";
  EXPECT_NE(initialValue(t, files, 7).bytes, a.bytes);
}

} // namespace
