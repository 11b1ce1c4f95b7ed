// Linear layers over pooled rows: their weights have the same names whatever the family.
#include "engine/models/families/standard.h"

namespace llorch::engine::models {
namespace {

using plan::DenseSlot;
using plan::Opcode;

constexpr WeightRow dense_row(DenseNumber number, DenseSlot slot, Source gguf, Source hf) {
  WeightRow row = families::weight(Opcode::kDense, slot, gguf, hf);
  row.variant = number;
  row.required = slot == DenseSlot::kWeight;
  return row;
}

constexpr std::array kRows{
    // Sentence Transformers' modules.
    dense_row(kDense2, DenseSlot::kWeight, "dense_2.weight", "^2_Dense.linear.weight"),
    dense_row(kDense2, DenseSlot::kBias, "dense_2.bias", "^2_Dense.linear.bias"),
    dense_row(kDense3, DenseSlot::kWeight, "dense_3.weight", "^3_Dense.linear.weight"),
    dense_row(kDense3, DenseSlot::kBias, "dense_3.bias", "^3_Dense.linear.bias"),
    // Classification heads: BERT's, RoBERTa's, and those of models that write.
    dense_row(kClassifierDense, DenseSlot::kWeight, "cls.weight", "pooler.dense.weight"),
    dense_row(kClassifierDense, DenseSlot::kBias, "cls.bias", "pooler.dense.bias"),
    dense_row(kClassifierDense, DenseSlot::kWeight, "", "^classifier.dense.weight"),
    dense_row(kClassifierDense, DenseSlot::kBias, "", "^classifier.dense.bias"),
    dense_row(kClassifierOut, DenseSlot::kWeight, "cls.output.weight", "^classifier.weight"),
    dense_row(kClassifierOut, DenseSlot::kBias, "cls.output.bias", "^classifier.bias"),
    dense_row(kClassifierOut, DenseSlot::kWeight, "", "^classifier.out_proj.weight"),
    dense_row(kClassifierOut, DenseSlot::kBias, "", "^classifier.out_proj.bias"),
    dense_row(kClassifierOut, DenseSlot::kWeight, "", "^score.weight"),
    // Of a head, or of the table that stands for it.
    dense_row(kAnswers, DenseSlot::kWeight, "", Source("^lm_head.weight", Load::kTokenRows)),
    dense_row(kAnswers, DenseSlot::kWeight, "", Source("embed_tokens.weight", Load::kTokenRows)),
};

}  // namespace

std::span<const WeightRow> dense_weights() { return kRows; }

}  // namespace llorch::engine::models
