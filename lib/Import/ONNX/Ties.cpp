// Tied weights: declared by the user, or found by comparing elements.

#include "Ties.h"

#include <onnx/onnx_pb.h>

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

bool isConstant(const Matrix &matrix) {
  for (size_t i = matrix.width; i < matrix.bytes.size(); i += matrix.width)
    if (matrix.bytes.substr(i, matrix.width) !=
        matrix.bytes.take_front(matrix.width))
      return false;
  return true;
}

/// In blocks, so that both matrices are read along cache lines.
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

/// The matrix that keeps its layout: a table that is gathered by rows.
bool isTable(const Model &model, const TensorRef &tensor) {
  for (const importer::FlatNode &node : model.nodes())
    if (node.proto->op_type() == "Gather" && node.proto->input_size() > 0 &&
        node.proto->input(0) == tensor.name)
      return true;
  return false;
}

} // namespace

std::vector<Tie> importer::tiesByContent(Model &model,
                                         const Constants &constants) {
  std::vector<Matrix> matrices;
  for (const TensorRef &tensor : model.initializers()) {
    if (!isFloat(tensor.type) || tensor.shape.size() != 2 || !tensor.inFile ||
        tensor.numElements() < 2 || constants.count(tensor.name))
      continue;
    llvm::Expected<StringRef> bytes = model.read(tensor.range);
    if (!bytes) {
      // The import itself says which bytes are missing.
      llvm::consumeError(bytes.takeError());
      continue;
    }
    Matrix matrix{&tensor, *bytes, byteSize(tensor.type)};
    if (!isConstant(matrix))
      matrices.push_back(matrix);
  }
  std::vector<Tie> ties;
  std::set<const TensorRef *> copies;
  for (size_t i = 0; i < matrices.size(); ++i)
    for (size_t j = i + 1; j < matrices.size(); ++j) {
      const Matrix &a = matrices[i], &b = matrices[j];
      if (a.tensor->type != b.tensor->type || copies.count(a.tensor) ||
          copies.count(b.tensor) || a.tensor->range == b.tensor->range)
        continue;
      bool same = a.tensor->shape == b.tensor->shape && a.bytes == b.bytes;
      bool transposed = !same && a.rows() == b.columns() &&
                        a.columns() == b.rows() && mayBeTranspose(a, b) &&
                        isTranspose(a, b);
      if (!same && !transposed)
        continue;
      bool second = isTable(model, *b.tensor) && !isTable(model, *a.tensor);
      const TensorRef *primary = second ? b.tensor : a.tensor;
      const TensorRef *copy = second ? a.tensor : b.tensor;
      ties.push_back({primary->name, copy->name, transposed});
      copies.insert(copy);
    }
  return ties;
}

FailureOr<std::vector<std::string>> externalFilesOf(StringRef path,
                                                    MLIRContext &context) {
  std::unique_ptr<Model> model = Model::load(path, context);
  if (!model)
    return failure();
  std::set<std::string> files;
  for (const TensorRef &tensor : model->initializers())
    if (tensor.inFile)
      files.insert(tensor.range.file);
  files.erase(llvm::sys::path::filename(path).str());
  return std::vector<std::string>(files.begin(), files.end());
}

FailureOr<std::vector<Tie>>
findTiesByContent(StringRef path, MLIRContext &context,
                  const std::set<std::string> &trainable) {
  std::unique_ptr<Model> model = Model::load(path, context);
  if (!model)
    return failure();
  return importer::tiesByContent(
      *model, importer::findConstants(*model, "", trainable));
}

FailureOr<std::vector<Tie>>
declaredTies(StringRef path,
             const std::vector<std::vector<std::string>> &declared,
             MLIRContext &context) {
  std::vector<Tie> ties;
  if (declared.empty())
    return ties;
  std::unique_ptr<Model> model = Model::load(path, context);
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
    // A square matrix could be either: its elements decide where they are
    // there.
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
