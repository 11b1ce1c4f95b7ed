#pragma once
// Codec of text_or_tokens.h. Included only by the .cpp files of this directory.
#include "wire/field.h"
#include "wire/text_or_tokens.h"

namespace llorch::wire {

// Bounds count the bytes of a text.
template <>
struct Codec<TextOrTokens> {
  using Tokens = Codec<std::vector<std::int32_t>>;

  static base::Result<TextOrTokens> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown) {
    TextOrTokens out;
    if (v.is_array()) {
      out.tokens = TRY(Tokens::read(v, path, {1, 1 << 20}, unknown));
    } else {
      out.text = TRY(Codec<std::string>::read(v, path, b, unknown));
    }
    return out;
  }
  static void write(std::string& out, const TextOrTokens& v) {
    v.has_tokens() ? Tokens::write(out, v.tokens) : append_json_string(out, v.text);
  }
  static bj::object schema(const Bounds& b) {
    return {{"anyOf", bj::array{Codec<std::string>::schema(b), Tokens::schema({1, 1 << 20})}}};
  }
};

}  // namespace llorch::wire
