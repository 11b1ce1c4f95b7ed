#pragma once
// Names to tensors: which stored tensor fills a weight slot, what is missing and what nobody uses.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/family.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

// Replaces the first `{}` of a pattern by the layer number and the second by the expert's.
std::string tensor_name(std::string_view pattern, std::uint32_t layer, std::uint32_t expert = 0);

// The names that NAME[a|b]REST stands for: NAMEaREST and NAMEbREST.
std::vector<std::string> joined_names(std::string_view pattern);

// Matches a name with a pattern in which `{}` stands for a number and a `*` at the end for any rest.
bool matches(std::string_view pattern, std::string_view name);

// One number that stands in a tensor of F32 or BF16. Errors: MISSING_WEIGHT, WEIGHT_SHAPE_MISMATCH, IO_ERROR.
base::Result<float> read_number(const io::ModelFiles& files, std::string_view name);

// Whether a slot is of keys or values that another layer's cache holds: whatever a file has for it is not used.
bool is_of_another_cache(const ModelConfig& config, const plan::WeightKey& key);

struct FoundWeight {
  const Source* source = nullptr;
  std::string name;  // of the tensor; of the first expert's; of what MXFP4's two names begin with
};

// The names of one file under one family. The files and the family outlive it.
class WeightNames {
 public:
  WeightNames(const io::ModelFiles& files, const Family& family);

  // The names of the layer that predicts a further token, which stand for the layer's in any number. Errors: MODEL_INCOMPATIBLE
  // (a family that runs no such layer, or files without one).
  base::Result<WeightNames> of_predictor(const ModelConfig& config) const;

  const io::ModelFiles& files() const { return files_; }
  const Family& family() const { return family_; }

  // The first row of a slot whose tensor the files hold; nullopt when there is none.
  std::optional<FoundWeight> find(const plan::WeightKey& key) const;
  // The embedding table. Errors: MISSING_WEIGHT.
  base::Result<const io::FileTensor*> embedding() const;

  // Every required slot has a tensor and every tensor a purpose; a bias of zeros needs none. A sentence for each kind of tensors that a
  // text model leaves where they are: layers that predict further tokens, towers for images and sound.
  // Errors: IO_ERROR; MISSING_WEIGHT, UNCLAIMED_WEIGHT; both say how many there are and name the first few.
  // `predictor`: of_predictor(), whose tensors are then required and used too; null: they are not.
  base::Result<std::vector<std::string>> check(const ModelConfig& config, const WeightNames* predictor = nullptr) const;

  // The full name behind the pattern of a row or list.
  std::string full_name(std::string_view pattern, std::uint32_t layer, std::uint32_t expert = 0) const;

 private:
  struct Census;
  const Source& source_of(const WeightRow& row) const { return is_hf_ ? row.hf : row.gguf; }
  std::span<const WeightRow> rows_of(plan::Opcode opcode) const {
    return opcode == plan::Opcode::kDense ? dense_weights() : family_.weights;
  }
  bool exists(const Source& source, const std::string& name) const;
  void count_op(const LayerOp& op, std::uint16_t layer, const ModelConfig& config, Census& census) const;
  void count_predictor(const ModelConfig& config, Census& census) const;
  void count_tower(const Tower& tower, const ModelConfig& config, Census& census) const;
  // What a tensor without a slot is there for.
  enum class Purpose : std::uint8_t { kNone, kRead, kPrediction, kTower };
  Purpose purpose_of(std::string_view name, const ModelConfig& config) const;

  // Where the tensors of the one layer stand that these names are of.
  struct OneLayer {
    std::string hf_prefix;
    std::uint32_t number = 0;
  };

  const io::ModelFiles& files_;
  const Family& family_;
  bool is_hf_;
  std::string prefix_;
  std::optional<OneLayer> one_layer_;
};

}  // namespace llorch::engine::models
