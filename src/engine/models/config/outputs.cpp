#include "engine/models/config/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::DenseActivation;
using plan::Pooling;

constexpr std::string_view kSupported = "mean, first (cls) and last token are built";
constexpr std::string_view kCausalOnly = "this family is built for rows that see no later ones";
constexpr std::uint32_t kRank = 4;  // pooling_type of a model of scores

// One name, or one flag per kind of older files.
Result<Pooling> read_kind(const io::HfConfig& config) {
  struct Kind {
    std::string_view name, flag;
    Pooling pooling;
  };
  constexpr std::array kKinds{Kind{"mean", "pooling_mode_mean_tokens", Pooling::kMean},
                              Kind{"cls", "pooling_mode_cls_token", Pooling::kFirst},
                              Kind{"lasttoken", "pooling_mode_lasttoken", Pooling::kLast}};
  if (config.contains("pooling_mode")) {
    const std::string_view name = TRY(config.string("pooling_mode"));
    const auto kind = std::ranges::find(kKinds, name, &Kind::name);
    if (kind == kKinds.end()) return impossible(config.source() + " pooling_mode", std::string(name), kSupported);
    return kind->pooling;
  }
  Pooling found = Pooling::kNone;
  for (const std::string_view key : config.keys()) {
    if (!key.starts_with("pooling_mode_") || !TRY(config.boolean_or(key, false))) continue;
    const auto kind = std::ranges::find(kKinds, key, &Kind::flag);
    if (kind == kKinds.end() || found != Pooling::kNone)
      return impossible(config.source(), std::string(key), fmt::format("{}, one at a time", kSupported));
    found = kind->pooling;
  }
  if (found == Pooling::kNone) return impossible(config.source(), "no kind of pooling", kSupported);
  return found;
}

// Adds the layer where the files hold one: it is as wide as what comes before it.
Result<bool> add_dense(const WeightNames& names, std::uint8_t number, DenseActivation activation, ModelConfig& config) {
  const auto found = names.find({.opcode = plan::Opcode::kDense, .variant = number});
  if (!found) return false;
  const io::FileTensor& tensor = *names.files().find_tensor(found->name);
  if (tensor.rank != 2 || tensor.dims[0] == 0 || tensor.dims[0] > kDimensionMax) {
    return base::fail(base::ErrorCode::kWeightShapeMismatch,
                      fmt::format("{} is {}; a linear layer is a matrix of at most {} rows", tensor.name,
                                  io::describe(tensor), kDimensionMax));
  }
  const std::uint32_t width = config.dense.empty() ? config.width : config.dense.back().rows;
  config.dense.push_back(
      {.number = number, .width = width, .rows = static_cast<std::uint32_t>(tensor.dims[0]), .activation = activation});
  return true;
}

// The head of a classification with one label, over the row that stands for the sequence.
Result<> read_classifier(const WeightNames& names, ModelConfig& config) {
  config.pooling = config.attention.causal ? Pooling::kLast : Pooling::kFirst;
  config.scores = true;
  TRY(add_dense(names, kClassifierDense, DenseActivation::kTanh, config));
  if (TRY(add_dense(names, kClassifierOut, DenseActivation::kNone, config))) return {};
  return base::fail(
      base::ErrorCode::kMissingWeight,
      fmt::format("{}: a model of scores needs the last layer of its classification head (cls.output.weight, "
                  "classifier.weight, classifier.out_proj.weight or score.weight)",
                  names.files().source()));
}

Result<> refuse_labels(std::string_view key, std::size_t count) {
  return impossible(key, fmt::format("{} labels", count), "a score needs one, or yes and no in this order");
}

Result<> demand_pooling(const ModelConfig& config, std::string_view key) {
  if (config.attention.causal || config.pooling != Pooling::kNone) return {};
  return impossible(key, "absent", "rows that see later ones write no text, and nothing says how they are pooled");
}

Result<DenseActivation> read_activation(const io::HfConfig& config) {
  const std::string_view word = TRY(config.string_or("activation_function", "torch.nn.modules.activation.Tanh"));
  if (word.ends_with(".Identity")) return DenseActivation::kNone;
  if (word.ends_with(".Tanh")) return DenseActivation::kTanh;
  return impossible(config.source() + " activation_function", std::string(word), "must be Identity or Tanh");
}

Result<> read_sentence_modules(const WeightNames& names, const io::HfConfig& pooling, ModelConfig& config) {
  config.pooling = TRY(read_kind(pooling));
  std::uint8_t number = kDense2;
  for (const io::HfConfig& module : names.files().hf_dense()) {
    if (!TRY(add_dense(names, number++, TRY(read_activation(module)), config))) {
      return base::fail(base::ErrorCode::kMissingWeight,
                        fmt::format("{}: its model.safetensors has no linear.weight", module.source()));
    }
  }
  return {};
}

// The keys say what the tensor's shape says.
Result<> read_dense(const GgufKeys& keys, const WeightNames& names, DenseNumber number, const std::string& name,
                    ModelConfig& config) {
  const bool is_there = TRY(add_dense(names, number, DenseActivation::kNone, config));
  for (const auto& [key, size] : {std::pair(name + "_feat_in", is_there ? config.dense.back().width : 0),
                                  std::pair(name + "_feat_out", is_there ? config.dense.back().rows : 0)}) {
    const std::uint32_t said = TRY(keys.number_or(key, size));
    if (said != size) return impossible(keys.key(key), fmt::to_string(said), fmt::format("the layer has {}", size));
  }
  return {};
}

Result<> read_answers(const io::HfConfig& answers, ModelConfig& config) {
  if (!config.attention.causal) return impossible(answers.source(), "true_token_id", "needs a model that writes text");
  config.pooling = Pooling::kLast;
  config.scores = true;
  const std::uint32_t rows = answers.contains("false_token_id") ? 2 : 1;
  config.dense = {{.number = kAnswers, .width = config.width, .rows = rows}};
  return {};
}

}  // namespace

Result<> read_outputs(const GgufKeys& keys, const WeightNames& names, ModelConfig& config) {
  if (!TRY(keys.flag_or("attention.causal", true)) && config.attention.causal)
    return impossible(keys.key("attention.causal"), "false", kCausalOnly);
  const std::uint32_t kind = TRY(keys.number_or("pooling_type", 0));
  if (kind == kRank) {
    TRY(read_classifier(names, config));
    std::vector<std::string_view> labels;
    const std::string key = keys.key("classifier.output_labels");
    if (keys.file().contains(key)) labels = TRY(keys.file().string_array(key));
    const std::uint32_t rows = config.dense.back().rows;
    const bool answers = rows == 2 && labels.size() == 2 && labels[0] == "yes" && labels[1] == "no";
    return rows == 1 || answers ? Result<>() : refuse_labels(key, rows);
  }
  if (kind > static_cast<std::uint32_t>(Pooling::kLast))
    return impossible(keys.key("pooling_type"), fmt::to_string(kind), kSupported);
  config.pooling = static_cast<Pooling>(kind);
  if (config.pooling == Pooling::kNone) return demand_pooling(config, keys.key("pooling_type"));
  TRY(read_dense(keys, names, kDense2, "dense_2", config));
  return read_dense(keys, names, kDense3, "dense_3", config);
}

Result<> read_outputs(const HfKeys& keys, const WeightNames& names, ModelConfig& config) {
  const io::HfConfig& text = keys.text();
  for (const auto& [name, causal] : {std::pair("is_causal", true), std::pair("use_bidirectional_attention", false)}) {
    if (TRY(text.boolean_or(name, causal)) != causal && config.attention.causal)
      return impossible(keys.key(name), causal ? "false" : "true", kCausalOnly);
  }
  if (const io::HfConfig* pooling = names.files().hf_pooling()) return read_sentence_modules(names, *pooling, config);
  if (const io::HfConfig* answers = names.files().hf_answers()) return read_answers(*answers, config);
  std::vector<std::string_view> classes;
  if (keys.root().contains("architectures")) classes = TRY(keys.root().string_list("architectures"));
  if (!classes.empty() && classes.front().ends_with("ForSequenceClassification")) {
    TRY(read_classifier(names, config));
    const std::uint32_t rows = config.dense.back().rows;
    return rows == 1 ? Result<>() : refuse_labels("id2label", rows);
  }
  return demand_pooling(config, "1_Pooling/config.json");
}

}  // namespace llorch::engine::models
