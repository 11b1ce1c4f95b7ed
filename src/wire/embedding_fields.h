#pragma once
// Codecs of embedding.h. Included only by the .cpp files of this directory.
#include "wire/embedding.h"
#include "wire/field.h"
#include "wire/text_or_tokens_field.h"

namespace llorch::wire {

// One text, one list of token ids, or a list of several of either.
template <>
struct Codec<EmbeddingInputs> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             EmbeddingInputs& out) {
    const auto refused = [&](std::size_t count) {
      return field_error(path, "length",
                         fmt::format("{} has {} inputs; allowed are 1 to {}", path, count, kEmbeddingInputsMax));
    };
    return read_one_or_several(v, path, b, unknown, kEmbeddingInputsMax, refused, out.inputs);
  }
  static void write(std::string& out, const EmbeddingInputs& v) {
    Codec<std::vector<TextOrTokens>>::write(out, v.inputs);
  }
  static bj::object schema(const Bounds& b) { return one_or_several_schema(b, kEmbeddingInputsMax); }
};

}  // namespace llorch::wire
