#pragma once
// Codecs of embedding.h. Included only by the .cpp files of this directory.
#include "wire/embedding.h"
#include "wire/field.h"
#include "wire/text_or_tokens_field.h"

namespace llorch::wire {

// One text, one list of token ids, or a list of several of either.
template <>
struct Codec<EmbeddingInputs> {
  static base::Result<EmbeddingInputs> read(const bj::value& v, const Path& path, const Bounds& b,
                                            UnknownKeys unknown) {
    EmbeddingInputs out;
    const bj::array* const list = v.if_array();
    if (list == nullptr || (!list->empty() && list->front().is_number())) {
      out.inputs.push_back(TRY(Codec<TextOrTokens>::read(v, path, b, unknown)));
      return out;
    }
    if (list->empty() || std::cmp_greater(list->size(), kEmbeddingInputsMax)) {
      return field_error(path, "length",
                         fmt::format("{} has {} inputs; allowed are 1 to {}", path, list->size(), kEmbeddingInputsMax));
    }
    for (std::size_t i = 0; i < list->size(); ++i)
      out.inputs.push_back(TRY(Codec<TextOrTokens>::read((*list)[i], path.element(i), b, unknown)));
    return out;
  }
  static void write(std::string& out, const EmbeddingInputs& v) {
    out += '[';
    for (const TextOrTokens& input : v.inputs) {
      if (out.back() != '[') out += ',';
      Codec<TextOrTokens>::write(out, input);
    }
    out += ']';
  }
  static bj::object schema(const Bounds& b) {
    bj::object one = Codec<TextOrTokens>::schema(b);
    bj::object list{{"type", "array"}, {"items", one}, {"minItems", 1}, {"maxItems", kEmbeddingInputsMax}};
    bj::array& any = one["anyOf"].as_array();
    any.push_back(std::move(list));
    return one;
  }
};

}  // namespace llorch::wire
