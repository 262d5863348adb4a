// Tied weights: declared by the user, or found as an embedding table and an
// equal output projection, which exporters may transpose and store again.

#include "Ties.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Path.h"

#include <set>

using namespace mlir;
using llvm::StringRef;

namespace cleave {

using importer::byteSize;
using importer::isFloat;
using importer::Model;
using importer::Shape;
using importer::TensorRef;

namespace {

/// The elements of a matrix, row by row.
struct Matrix {
  const TensorRef *tensor;
  StringRef bytes;
  int64_t width = 0;

  int64_t rows() const { return tensor->shape[0]; }
  int64_t columns() const { return tensor->shape[1]; }
  StringRef at(int64_t i, int64_t j) const {
    return bytes.substr((i * columns() + j) * width, width);
  }
};

/// Returns whether the tensor has at most two different values, like
/// identities, ones and zeros. Many matrices are initialized like this, so two
/// equal ones are no evidence that their weights are tied.
bool isPlainStart(const Matrix &matrix) {
  StringRef first = matrix.bytes.take_front(matrix.width), second = first;
  for (size_t i = matrix.width; i < matrix.bytes.size(); i += matrix.width) {
    StringRef element = matrix.bytes.substr(i, matrix.width);
    if (element == first || element == second)
      continue;
    if (second != first)
      return false;
    second = element;
  }
  return true;
}

/// Returns whether `b` is the transpose of `a`. Compares in blocks, so that
/// both matrices are read along cache lines.
bool isTranspose(const Matrix &a, const Matrix &b) {
  constexpr int64_t block = 32;
  for (int64_t i = 0; i < a.rows(); i += block)
    for (int64_t j = 0; j < a.columns(); j += block)
      for (int64_t k = i; k < std::min(i + block, a.rows()); ++k)
        for (int64_t l = j; l < std::min(j + block, a.columns()); ++l)
          if (a.at(k, l) != b.at(l, k))
            return false;
  return true;
}

/// Compared before whole matrices are.
bool mayBeTranspose(const Matrix &a, const Matrix &b) {
  for (int64_t n = 0; n < 16; ++n) {
    int64_t i = n * 7919 % a.rows(), j = n * 104729 % a.columns();
    if (a.at(i, j) != b.at(j, i))
      return false;
  }
  return true;
}

/// Returns whether the graph gathers rows of the tensor, so that it is an
/// embedding table. A table keeps its layout when it is tied.
bool isTable(const Model &model, const TensorRef &tensor) {
  for (const importer::FlatNode &node : model.nodes())
    if (node.proto->op_type() == "Gather" && node.proto->input_size() > 0 &&
        node.proto->input(0) == tensor.name)
      return true;
  return false;
}

int64_t intAttr(const ::onnx::NodeProto &node, StringRef name,
                int64_t otherwise) {
  for (const auto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.i();
  return otherwise;
}

/// A product of a matrix of the ONNX file with another operand: the name of
/// that operand, and the dimension of the matrix that is summed.
struct Product {
  std::string other;
  int summed;
};

/// Returns the dimension of operand `index` of an Einsum node that is summed;
/// -1 if there is none, or several.
int summedByEinsum(const ::onnx::NodeProto &node, int index) {
  std::string equation;
  for (const auto &attribute : node.attribute())
    if (attribute.name() == "equation")
      equation = attribute.s();
  llvm::erase(equation, ' ');
  auto [terms, result] = StringRef(equation).split("->");
  llvm::SmallVector<StringRef> operands;
  terms.split(operands, ',');
  if (operands.size() != 2 || operands[index].size() != 2)
    return -1;
  bool keeps[2] = {result.contains(operands[index][0]),
                   result.contains(operands[index][1])};
  return keeps[0] == keeps[1] ? -1 : keeps[0];
}

class TieFinder {
public:
  TieFinder(Model &model, const importer::Constants &constants)
      : model(model), consumers(model.consumers()) {
    for (const TensorRef &tensor : model.initializers())
      addMatrix(tensor, constants);
  }

  importer::FoundTies run();

private:
  void addMatrix(const TensorRef &tensor, const importer::Constants &constants);
  std::vector<std::string> lookupsIn(const TensorRef &table) const;
  std::vector<Product> productsWith(const TensorRef &matrix) const;
  bool holdsRowsOf(const Matrix &matrix, const Matrix &table,
                   const Product &product) const;
  const std::set<std::string> &dependents(const TensorRef &table);
  bool isMeant(const TensorRef &copy, const TensorRef &table) const;

  Model &model;
  std::map<std::string, std::vector<const importer::FlatNode *>> consumers;
  std::vector<Matrix> matrices;
  std::map<const TensorRef *, std::set<std::string>> dependentsOf;
};

void TieFinder::addMatrix(const TensorRef &tensor,
                          const importer::Constants &constants) {
  if (!isFloat(tensor.type) || tensor.shape.size() != 2 || !tensor.inFile ||
      tensor.numElements() < 2 || tensor.isApart ||
      constants.count(tensor.name))
    return;
  llvm::Expected<StringRef> bytes = model.read(tensor.range);
  if (!bytes) {
    // The import reports missing bytes itself, so no error is reported here.
    llvm::consumeError(bytes.takeError());
    return;
  }
  Matrix matrix{&tensor, *bytes, byteSize(tensor.type)};
  if (!isPlainStart(matrix))
    matrices.push_back(matrix);
}

/// Returns the names of the values that hold rows that the graph looks up in
/// the table.
std::vector<std::string> TieFinder::lookupsIn(const TensorRef &table) const {
  std::vector<std::string> lookups, values = {table.name};
  for (size_t i = 0; i < values.size(); ++i) {
    auto found = consumers.find(values[i]);
    if (found == consumers.end())
      continue;
    for (const importer::FlatNode *node : found->second) {
      StringRef op = node->proto->op_type();
      if (node->proto->input(0) != values[i])
        continue;
      if (op == "Identity" || op == "Cast")
        values.push_back(node->proto->output(0));
      else if (op == "Gather" && intAttr(*node->proto, "axis", 0) == 0)
        lookups.push_back(node->proto->output(0));
    }
  }
  return lookups;
}

std::vector<Product> TieFinder::productsWith(const TensorRef &matrix) const {
  std::vector<Product> products;
  // The names of the values that hold the elements of the matrix, possibly
  // moved; the flag says whether the value is the transpose.
  std::vector<std::pair<std::string, bool>> values = {{matrix.name, false}};
  for (size_t i = 0; i < values.size(); ++i) {
    auto [value, isTransposed] = values[i];
    auto found = consumers.find(value);
    if (found == consumers.end())
      continue;
    for (const importer::FlatNode *flat : found->second) {
      const ::onnx::NodeProto &node = *flat->proto;
      StringRef op = node.op_type();
      if (op == "Identity" || op == "Cast")
        values.push_back({node.output(0), isTransposed});
      else if (op == "Transpose") // of a matrix: its default, or [1, 0]
        values.push_back({node.output(0), !isTransposed});
      if (node.input_size() < 2)
        continue;
      int index = node.input(1) == value ? 1 : 0;
      int summed = -1;
      if (op == "MatMul")
        summed = 1 - index;
      else if (op == "Gemm" && node.input(index) == value)
        summed = (1 - index) ^
                 int(intAttr(node, index ? "transB" : "transA", 0) != 0);
      else if (op == "Einsum" && node.input_size() == 2)
        summed = summedByEinsum(node, index);
      if (summed >= 0)
        products.push_back({node.input(1 - index), summed ^ int(isTransposed)});
    }
  }
  return products;
}

/// Returns whether the matrix holds the rows of the table in the layout in
/// which the product computes one score (logit) for each of these rows.
bool TieFinder::holdsRowsOf(const Matrix &matrix, const Matrix &table,
                            const Product &product) const {
  if (matrix.tensor->type != table.tensor->type)
    return false;
  if (product.summed == 1)
    return matrix.tensor->shape == table.tensor->shape &&
           matrix.bytes == table.bytes;
  return matrix.rows() == table.columns() && matrix.columns() == table.rows() &&
         mayBeTranspose(matrix, table) && isTranspose(matrix, table);
}

const std::set<std::string> &TieFinder::dependents(const TensorRef &table) {
  auto [known, isNew] = dependentsOf.try_emplace(&table);
  std::set<std::string> &values = known->second;
  if (!isNew)
    return values;
  std::vector<std::string> lookups = lookupsIn(table);
  values.insert(lookups.begin(), lookups.end());
  for (const importer::FlatNode &node : model.nodes())
    if (llvm::any_of(node.proto->input(), [&](const std::string &input) {
          return values.count(input) != 0;
        }))
      values.insert(node.proto->output().begin(), node.proto->output().end());
  return values;
}

/// Returns whether the ONNX file's metadata about the origin of `copy` allows
/// that it is a copy of the table.
bool TieFinder::isMeant(const TensorRef &copy, const TensorRef &table) const {
  const importer::Metadata &notes = model.metadata();
  if (notes.heldAs(copy.name) != importer::HeldAs::Unknown)
    return false; // modules hold it beside the table
  const std::vector<std::string> &sources = notes.foldedFrom(copy.name);
  return sources.empty() || llvm::is_contained(sources, table.name);
}

importer::FoundTies TieFinder::run() {
  importer::FoundTies found;
  llvm::SmallVector<const Matrix *> tables, others;
  for (const Matrix &matrix : matrices)
    (lookupsIn(*matrix.tensor).empty() ? others : tables).push_back(&matrix);
  if (tables.empty())
    return found;
  for (const Matrix *matrix : others) {
    std::vector<std::pair<const Matrix *, bool>> meant; // and if transposed
    for (const Product &product : productsWith(*matrix->tensor))
      for (const Matrix *table : tables)
        if (matrix->tensor->range != table->tensor->range &&
            holdsRowsOf(*matrix, *table, product) &&
            isMeant(*matrix->tensor, *table->tensor) &&
            dependents(*table->tensor).count(product.other) &&
            llvm::none_of(meant,
                          [&](auto &known) { return known.first == table; }))
          meant.push_back({table, product.summed == 0});
    if (meant.size() == 1) {
      found.ties.push_back({meant[0].first->tensor->name, matrix->tensor->name,
                            meant[0].second});
      continue;
    }
    if (meant.empty())
      continue;
    found.open.push_back({matrix->tensor->name, {}});
    for (auto [table, transposed] : meant)
      found.open.back().tables.push_back(table->tensor->name);
  }
  return found;
}

} // namespace

importer::FoundTies importer::tiesByContent(Model &model,
                                            const Constants &constants) {
  return TieFinder(model, constants).run();
}

FailureOr<std::vector<std::string>>
externalFilesOf(StringRef path, MLIRContext &context,
                const ImportOptions &options) {
  std::unique_ptr<Model> model = Model::load(path, context, options.limits);
  if (!model)
    return failure();
  std::set<std::string> files;
  for (const TensorRef &tensor : model->initializers())
    if (tensor.inFile)
      files.insert(tensor.range.file);
  files.erase(llvm::sys::path::filename(path).str());
  return std::vector<std::string>(files.begin(), files.end());
}

FailureOr<std::vector<Tie>> findTiesByContent(StringRef path,
                                              MLIRContext &context,
                                              const ImportOptions &options) {
  std::unique_ptr<Model> model = importer::loadSplit(path, options, context);
  if (!model)
    return failure();
  importer::FoundTies found = importer::tiesByContent(
      *model, importer::findConstants(*model, "", options));
  auto isDeclared = [&](const std::string &name) {
    return llvm::any_of(options.ties, [&](const Tie &tie) {
      return tie.copy == name || tie.primary == name;
    });
  };
  for (const importer::OpenTie &open : found.open)
    if (!isDeclared(open.copy))
      return emitError(model->location())
             << "'" << open.copy << "' holds the elements of the tables '"
             << llvm::join(open.tables, "' and '")
             << "', and is multiplied with what depends on them: which one is "
                "meant is open; name it in train.tie = [[\""
             << open.tables[0] << "\", \"" << open.copy
             << "\"]], or give each use of '" << open.copy
             << "' a parameter of its own with train.untie = ["
             << importer::patternOf(*model, open.copy) << "]";
  llvm::erase_if(found.ties,
                 [&](const Tie &tie) { return isDeclared(tie.copy); });
  return found.ties;
}

FailureOr<std::vector<Tie>>
declaredTies(StringRef path,
             const std::vector<std::vector<std::string>> &declared,
             MLIRContext &context, const ImportOptions &options) {
  std::vector<Tie> ties;
  if (declared.empty())
    return ties;
  std::unique_ptr<Model> model = importer::loadSplit(path, options, context);
  if (!model)
    return failure();
  for (const std::vector<std::string> &names : declared) {
    if (names.size() != 2)
      return emitError(model->location())
             << "cannot tie " << names.size()
             << " tensors; train.tie lists pairs of names";
    const TensorRef *a = model->findInitializer(names[0]);
    const TensorRef *b = model->findInitializer(names[1]);
    if (!a || !b)
      return emitError(model->location())
             << "has no initializer '" << (a ? names[1] : names[0])
             << "' (train.tie)";
    Shape reversed(a->shape.rbegin(), a->shape.rend());
    bool same = a->shape == b->shape, transposed = reversed == b->shape;
    if (!same && !transposed)
      return emitError(model->location())
             << "cannot tie '" << names[0] << "' and '" << names[1]
             << "': their shapes are neither equal nor transposed";
    // For a square matrix the shape does not tell whether it is transposed; its
    // elements do.
    if (same && transposed && a->shape.size() == 2) {
      llvm::Expected<StringRef> left = model->read(a->range);
      llvm::Expected<StringRef> right = model->read(b->range);
      if (left && right && *left != *right)
        transposed = isTranspose({a, *left, byteSize(a->type)},
                                 {b, *right, byteSize(b->type)});
      else
        transposed = false;
      llvm::consumeError(left.takeError());
      llvm::consumeError(right.takeError());
    } else {
      transposed = !same;
    }
    bool second = isTable(*model, *b) && !isTable(*model, *a);
    ties.push_back({second ? names[1] : names[0], second ? names[0] : names[1],
                    transposed});
  }
  return ties;
}

} // namespace cleave
