#pragma once
// Codec of text_or_tokens.h. Included only by the .cpp files of this directory.
#include <utility>

#include "wire/field.h"
#include "wire/text_or_tokens.h"

namespace llorch::wire {

// Bounds count the bytes of a text.
template <>
struct Codec<TextOrTokens> {
  using Tokens = Codec<std::vector<std::int32_t>>;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             TextOrTokens& out) {
    if (v.is_array()) return Tokens::read(v, path, {1, 1 << 20}, unknown, out.tokens);
    return Codec<std::string>::read(v, path, b, unknown, out.text);
  }
  static void write(std::string& out, const TextOrTokens& v) {
    v.has_tokens() ? Tokens::write(out, v.tokens) : append_json_string(out, v.text);
  }
  static bj::object schema(const Bounds& b) {
    return {{"anyOf", bj::array{Codec<std::string>::schema(b), Tokens::schema({1, 1 << 20})}}};
  }
};

// One of them, or a list of at most `count_max`. `refused` gives the error for a list of none or of more.
template <class Refused>
base::Result<> read_one_or_several(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                                   std::int64_t count_max, Refused refused, std::vector<TextOrTokens>& out) {
  using One = Codec<TextOrTokens>;
  out.clear();
  const bj::array* const list = v.if_array();
  if (list == nullptr || (!list->empty() && list->front().is_number())) {
    return One::read(v, path, b, unknown, out.emplace_back());
  }
  if (list->empty() || std::cmp_greater(list->size(), count_max)) return refused(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    TRY(One::read((*list)[i], path.element(i), b, unknown, out.emplace_back()));
  }
  return {};
}
inline bj::object one_or_several_schema(const Bounds& b, std::int64_t count_max) {
  bj::object one = Codec<TextOrTokens>::schema(b);
  bj::object list{{"type", "array"}, {"items", one}, {"minItems", 1}, {"maxItems", count_max}};
  one["anyOf"].as_array().push_back(std::move(list));
  return one;
}

}  // namespace llorch::wire
