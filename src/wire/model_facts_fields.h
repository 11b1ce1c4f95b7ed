#pragma once
// The field table of ModelFacts, which stands alone and inside the orders of a pool.
#include "wire/device_mask.h"
#include "wire/field.h"
#include "wire/pool.h"

namespace llorch::wire {

// So that sums over what a pool reports stay far from the end of their type.
inline constexpr double kReportedBytesMax = 1e15;

template <>
struct Table<ModelImages> {
  using S = ModelImages;
  static Fields fields() {
    return {required("image_token", &S::image_token, "Id that stands for an image in a rendered prompt.", {0}),
            required("pixels_per_side", &S::pixels_per_side, "Of the square that becomes one token.", {1, 1 << 12}),
            required("pixels_min", &S::pixels_min, "Of an image, after resizing.", {0, 1 << 30}),
            required("pixels_max", &S::pixels_max, "Of an image, after resizing.", {1, 1 << 30}),
            required("tokens_max", &S::tokens_max, "Of all images of one request.", {1, 1 << 24})};
  }
};
template <>
struct EnumNames<PromptForm> {
  static constexpr auto names = std::array{std::pair{PromptForm::kTokens, std::string_view("tokens")},
                                           std::pair{PromptForm::kText, std::string_view("text")}};
};
template <>
struct Table<ModelFacts> {
  using S = ModelFacts;
  static Fields fields() {
    return {required("model_ref", &S::model_ref),
            required("digest", &S::digest),
            optional("architecture", &S::architecture),
            optional("quant_kind", &S::quant_kind),
            required("size_bytes", &S::size_bytes, "", {0, kReportedBytesMax}),
            optional("vocab_size", &S::vocab_size),
            optional("hidden_size", &S::hidden_size,
                     "Elements of a token's row between two layers. Omitted: not known.", {1}),
            required("context_length", &S::context_length),
            optional("slots", &S::slots),
            required("memory_bytes", &S::memory_bytes, "Of a worker, on each of its devices.", {0, kReportedBytesMax}),
            optional("devices", &S::devices, "That share the model in one worker.", {1, kMaskDevicesMax}),
            optional("images", &S::images, "Omitted: takes no images."),
            optional("embedding_dimensions", &S::embedding_dimensions,
                     "Elements of a vector. Omitted: the model makes none.", {1}),
            optional("takes", &S::takes, "Token ids, or text that only its engine can count."),
            optional("replayable", &S::replayable,
                     "A run can be repeated bit by bit. false: a job lost after its first token ends."),
            optional("device", &S::device, "A worker runs there and nowhere else. Omitted: wherever it fits."),
            optional("parameters", &S::parameters, "Fields of sampling that its engine knows. Omitted: all of them.",
                     {0, 64}),
            optional("reranks", &S::reranks, "Whether it judges documents by a query. Omitted: it does not.")};
  }
  static base::Result<> validate(const S& facts) {
    if (facts.takes == PromptForm::kTokens || facts.writes()) return {};
    return field_error("takes", "combination",
                       "takes is text and the model does not write; one that takes text does nothing else");
  }
};

}  // namespace llorch::wire
