// Models, as text, that the tests cut into stages.

#include "Models.h"

#include <random>
#include <vector>

using namespace cleave;

namespace {

/// Collects the arguments and operations of a function.
class Text {
public:
  std::string argument(const std::string &name, const std::string &type,
                       const std::string &role, const char *more = "") {
    arguments += (arguments.empty() ? "" : ", ") + ("%" + name) + ": tensor<" +
                 type + "> {" + more + "nn.name = \"" + name +
                 "\", nn.role = #nn.role<" + role + ">}";
    return "%" + name;
  }
  std::string parameter(const std::string &name, const std::string &type) {
    return argument(name, type, "parameter");
  }
  std::string op(const std::string &text) {
    std::string name = "%v" + std::to_string(count++);
    body += "  " + name + " = " + text + "\n";
    return name;
  }
  void line(const std::string &text) { body += "  " + text + "\n"; }

  /// Returns the text of a function that has the current arguments and body and
  /// returns `values`.
  std::string function(const std::string &name,
                       const std::vector<std::string> &values,
                       const std::vector<std::string> &types,
                       const std::vector<std::string> &attrs) const {
    auto join = [](const std::vector<std::string> &parts) {
      std::string all;
      for (const std::string &part : parts)
        all += (all.empty() ? "" : ", ") + part;
      return all;
    };
    std::vector<std::string> plain, named;
    for (size_t i = 0; i < types.size(); ++i) {
      plain.push_back("tensor<" + types[i] + ">");
      named.push_back(plain.back() + " {" + attrs[i] + "}");
    }
    return "func.func @" + name + "(" + arguments + ") -> (" + join(named) +
           ") {\n" + body + "  return " + join(values) + " : " + join(plain) +
           "\n}\n";
  }

  std::string arguments, body;
  int count = 0;
};

const std::vector<std::string> kLossTypes = {"f64", "f64"};
const std::vector<std::string> kLossAttrs = {
    "nn.name = \"loss\", nn.role = #nn.role<loss>",
    "nn.name = \"weight\", nn.role = #nn.role<weight>"};

std::string outputAttrs(const std::string &name) {
  return "nn.name = \"" + name + "\", nn.role = #nn.role<output>";
}

constexpr const char *kStream = "2x4x8xf64";

/// Appends the layer normalization of an activation of shape [2, 4, 8] and
/// returns the name of its result.
std::string norm(Text &t, const std::string &x, const std::string &name) {
  std::string gain = t.parameter(name + ".gain", "8xf64"),
              bias = t.parameter(name + ".bias", "8xf64");
  std::string out = "%n" + std::to_string(t.count++);
  t.line(out + ", " + out + "m, " + out + "r = nn.layer_norm " + x + ", " +
         gain + ", " + bias +
         " epsilon = 1.0e-5 : (tensor<2x4x8xf64>, tensor<8xf64>, "
         "tensor<8xf64>) -> (tensor<2x4x8xf64>, tensor<2x4xf64>, "
         "tensor<2x4xf64>)");
  return out;
}

std::string add(Text &t, const std::string &a, const std::string &b) {
  return t.op("arith.addf " + a + ", " + b + " : tensor<2x4x8xf64>");
}

/// Appends x + attention(x), with keys and values computed from `source`, and
/// returns the name of the sum.
std::string attend(Text &t, const std::string &x, const std::string &source,
                   const std::string &name, bool causal) {
  std::string q = t.op("nn.einsum \"bsh,hngd->bsngd\" " + x + ", " +
                       t.parameter(name + ".q", "8x2x1x4xf64") +
                       " : tensor<2x4x8xf64>, tensor<8x2x1x4xf64> -> "
                       "tensor<2x4x2x1x4xf64>");
  auto project = [&](const char *part) {
    return t.op("nn.einsum \"bsh,hnd->bsnd\" " + source + ", " +
                t.parameter(name + part, "8x2x4xf64") +
                " : tensor<2x4x8xf64>, tensor<8x2x4xf64> -> "
                "tensor<2x4x2x4xf64>");
  };
  std::string k = project(".k"), v = project(".v");
  std::string out = "%a" + std::to_string(t.count++);
  t.line(out + ", " + out + "l = nn.attention " + q + ", " + k + ", " + v +
         " scale = 0.5" + (causal ? " causal" : "") +
         " : (tensor<2x4x2x1x4xf64>, tensor<2x4x2x4xf64>, "
         "tensor<2x4x2x4xf64>) -> (tensor<2x4x2x1x4xf64>, "
         "tensor<2x2x1x4xf64>)");
  return t.op("nn.einsum \"bsngd,ngdh->bsh\" " + out + ", " +
              t.parameter(name + ".o", "2x1x4x8xf64") +
              " : tensor<2x4x2x1x4xf64>, tensor<2x1x4x8xf64> -> "
              "tensor<2x4x8xf64>");
}

std::string mlp(Text &t, const std::string &x, const std::string &name) {
  std::string inner = t.op("nn.einsum \"bsh,hm->bsm\" " + x + ", " +
                           t.parameter(name + ".in", "8x16xf64") +
                           " : tensor<2x4x8xf64>, tensor<8x16xf64> -> "
                           "tensor<2x4x16xf64>");
  inner = t.op("nn.gelu tanh " + inner + " : tensor<2x4x16xf64>");
  return t.op("nn.einsum \"bsm,mh->bsh\" " + inner + ", " +
              t.parameter(name + ".out", "16x8xf64") +
              " : tensor<2x4x16xf64>, tensor<16x8xf64> -> tensor<2x4x8xf64>");
}

std::string embed(Text &t, const std::string &table,
                  const std::string &tokens) {
  return t.op("nn.gather " + table + ", " + tokens +
              " dim = 0 : tensor<11x8xf64>, tensor<2x4xi64> -> "
              "tensor<2x4x8xf64>");
}

/// Appends the logits (the product with the embedding table). Returns the text
/// of two functions: @forward returns the logits, @loss compares them with
/// labels.
std::string finish(Text &t, const std::string &x, const std::string &table) {
  std::string logits = t.op("nn.einsum \"bsh,vh->bsv\" " + x + ", " + table +
                            " : tensor<2x4x8xf64>, tensor<11x8xf64> -> "
                            "tensor<2x4x11xf64>");
  std::string text =
      t.function("forward", {logits}, {"2x4x11xf64"}, {outputAttrs("logits")});
  std::string labels = t.argument("labels", "2x4xi64", "labels");
  t.line("%ce, %lse = nn.cross_entropy " + logits + ", " + labels +
         " ignore_index = -100 : (tensor<2x4x11xf64>, tensor<2x4xi64>) -> "
         "(tensor<2x4xf64>, tensor<2x4xf64>)");
  std::string loss =
      t.op("nn.reduce sum %ce dims = [0, 1] : tensor<2x4xf64> -> tensor<f64>");
  t.line("%ignored = arith.constant dense<-100> : tensor<2x4xi64>");
  std::string counted =
      t.op("arith.cmpi ne, " + labels + ", %ignored : tensor<2x4xi64>");
  counted =
      t.op("arith.uitofp " + counted + " : tensor<2x4xi1> to tensor<2x4xf64>");
  std::string weight = t.op("nn.reduce sum " + counted +
                            " dims = [0, 1] : tensor<2x4xf64> -> tensor<f64>");
  return text + t.function("loss", {loss, weight}, kLossTypes, kLossAttrs);
}

} // namespace

std::string test::gptModel(int layers) {
  Text t;
  std::string table = t.parameter("table", "11x8xf64"),
              tokens = t.argument("tokens", "2x4xi64", "tokens"),
              places = t.parameter("places", "4x8xf64");
  std::string x = embed(t, table, tokens);
  x = add(t, x,
          t.op("nn.broadcast " + places +
               " dims = [1, 2] : tensor<4x8xf64> -> tensor<2x4x8xf64>"));
  for (int layer = 0; layer < layers; ++layer) {
    std::string name = "h." + std::to_string(layer);
    std::string in = norm(t, x, name + ".ln1");
    x = add(t, x, attend(t, in, in, name + ".attn", true));
    x = add(t, x, mlp(t, norm(t, x, name + ".ln2"), name + ".mlp"));
  }
  return finish(t, norm(t, x, "ln"), table);
}

std::string test::encoderDecoderModel(int layers) {
  Text t;
  std::string table = t.parameter("table", "11x8xf64"),
              tokens = t.argument("tokens", "2x4xi64", "tokens"),
              targets = t.argument("targets", "2x4xi64", "input",
                                   "nn.batch_dim = 0 : i64, ");
  std::string y = embed(t, table, targets), x = embed(t, table, tokens);
  for (int layer = 0; layer < layers; ++layer) {
    std::string name = "encoder." + std::to_string(layer);
    std::string in = norm(t, x, name + ".ln1");
    x = add(t, x, attend(t, in, in, name + ".attn", false));
    x = add(t, x, mlp(t, norm(t, x, name + ".ln2"), name + ".mlp"));
  }
  for (int layer = 0; layer < layers; ++layer) {
    std::string name = "decoder." + std::to_string(layer);
    std::string in = norm(t, y, name + ".ln1");
    y = add(t, y, attend(t, in, in, name + ".self", true));
    y = add(t, y,
            attend(t, norm(t, y, name + ".ln2"), x, name + ".cross", false));
    y = add(t, y, mlp(t, norm(t, y, name + ".ln3"), name + ".mlp"));
  }
  return finish(t, y, table);
}

std::string test::randomModel(uint64_t seed, int size) {
  std::mt19937_64 random(seed);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Text t;
  std::vector<std::string> parameters;
  for (int i = 0; i < 3 + size / 3; ++i)
    parameters.push_back(t.parameter("w" + std::to_string(i), "8x8xf64"));
  std::string input =
      t.argument("x", kStream, "input", "nn.batch_dim = 0 : i64, ");
  // Values that are computed only from inputs, and values that are computed
  // only from parameters.
  t.line("%half = arith.constant dense<0.5> : tensor<2x4x8xf64>");
  std::string mask =
      t.op("arith.maximumf " + input + ", %half : tensor<2x4x8xf64>");
  auto weight = [&] {
    std::string w = parameters[below(parameters.size())];
    if (below(4) == 0)
      w = t.op("nn.transpose " + w +
               " [1, 0] : tensor<8x8xf64> -> tensor<8x8xf64>");
    return w;
  };
  auto product = [&](const std::string &x) {
    return t.op("nn.einsum \"bsh,hk->bsk\" " + x + ", " + weight() +
                " : tensor<2x4x8xf64>, tensor<8x8xf64> -> tensor<2x4x8xf64>");
  };
  std::vector<std::string> values = {product(input)}, integers;
  // Picks a recent value, or any earlier one.
  auto pick = [&] {
    size_t back = below(3) ? below(std::min<size_t>(values.size(), 3))
                           : below(values.size());
    return values[values.size() - 1 - back];
  };
  for (int i = 0; i < size; ++i) {
    std::string x = pick(), y = pick();
    switch (below(8)) {
    case 0:
      values.push_back(add(t, x, y));
      break;
    case 1:
      values.push_back(
          t.op("arith.mulf " + x + ", " + mask + " : tensor<2x4x8xf64>"));
      break;
    case 2:
      values.push_back(t.op("math.tanh " + x + " : tensor<2x4x8xf64>"));
      break;
    case 3: // via integers, so without a derivative
      integers.push_back(t.op("arith.fptosi " + x +
                              " : tensor<2x4x8xf64> to tensor<2x4x8xi64>"));
      [[fallthrough]];
    case 4:
      if (!integers.empty())
        values.push_back(
            add(t, y,
                t.op("arith.sitofp " + integers[below(integers.size())] +
                     " : tensor<2x4x8xi64> to tensor<2x4x8xf64>")));
      break;
    default:
      values.push_back(
          t.op("math.tanh " + product(x) + " : tensor<2x4x8xf64>"));
    }
  }
  std::string last = product(values.back());
  // One output is a value from the middle of the model, which the loss may not
  // read; another output is computed only from inputs.
  std::string middle = values[values.size() / 2];
  std::string text = t.function(
      "forward", {last, middle, mask}, {kStream, kStream, kStream},
      {outputAttrs("last"), outputAttrs("middle"), outputAttrs("mask")});
  std::string loss = t.op("nn.einsum \"ijk,ijk->\" " + last + ", " + mask +
                          " : tensor<2x4x8xf64>, tensor<2x4x8xf64> -> "
                          "tensor<f64>");
  t.line("%eight = arith.constant dense<8.0> : tensor<f64>");
  return text + t.function("loss", {loss, "%eight"}, kLossTypes, kLossAttrs);
}
