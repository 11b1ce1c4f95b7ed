#pragma once
// Values of notations that are not JSON, as JSON.
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "text/formats/tools.h"

namespace llorch::text::formats {

inline constexpr std::size_t kNestingMax = 64;

std::string json_string(std::string_view text);

// Whether a schema takes strings and nothing else; null: no schema.
bool is_string_schema(const boost::json::value* schema);
// The schema of one parameter; null where the tool states none.
const boost::json::value* parameter_schema(const Tool* tool, std::string_view name);

// Text without a type as a value of `schema`: a string where it must be one or where nothing is known, else the JSON
// that the text spells, else a string.
std::string typed_json(std::string_view text, const boost::json::value* schema);

// JSON number, true, false or null; also as Python writes them.
std::optional<std::string> json_word(std::string_view word);

// The members of an object in the order they are added.
class ObjectText {
 public:
  // False: the name is there already.
  bool add(std::string_view name, std::string_view json);
  std::string take() && { return std::move(text_) + "}"; }

 private:
  std::string text_ = "{";
  std::set<std::string, std::less<>> names_;
};

// A position in a text that is read from left to right.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void next() { ++at_; }
  std::string_view rest() const { return text_.substr(at_); }
  bool take(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (!at_end() && (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r')) ++at_;
  }
  // Everything before `word`, which is taken too.
  std::optional<std::string_view> up_to(std::string_view word) {
    const std::size_t found = rest().find(word);
    if (found == std::string_view::npos) return std::nullopt;
    const std::string_view before = rest().substr(0, found);
    at_ += found + word.size();
    return before;
  }
  // Everything before the first of `stops`, which is not taken.
  std::string_view until(std::string_view stops) {
    const std::string_view before = rest().substr(0, rest().find_first_of(stops));
    at_ += before.size();
    return before;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace llorch::text::formats
