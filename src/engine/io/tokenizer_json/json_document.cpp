#include "engine/io/tokenizer_json/json_document.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/json_text.h"
#include "base/parse_json.h"
#include "text/tokenizer_data.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

namespace bj = boost::json;
using Limits = text::TokenizerLimits;

constexpr std::size_t kDepthMax = 32;
// Of the part that is kept as a tree; the largest public one has some 20,000 (1,000 added tokens of 7 fields each).
constexpr std::size_t kTreeValuesMax = 1u << 20;
constexpr std::size_t kListDepth = 3;  // root, model, vocab

base::Error corrupt(std::string_view source, std::string_view why) {
  return {base::ErrorCode::kCorruptFile, fmt::format("{}: {}; download the model again", source, why), {}};
}

class Handler {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  Handler() { stack_.reset(); }
  std::string_view refusal() const { return refusal_; }
  JsonDocument take() {
    document_.root = stack_.release();
    return std::move(document_);
  }

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }

  bool on_object_begin(bj::error_code& ec) {
    ++depth_;
    if (list_ == List::kNone) return true;
    if (depth_ != kListDepth || list_ != List::kVocabulary) return refuse("an object inside of its lists", ec);
    document_.vocabulary_is_object = true;
    return true;
  }
  bool on_object_end(std::size_t count, bj::error_code& ec) {
    if (list_ != List::kNone) return close_list(ec);
    --depth_;
    object_steps_ += std::uint64_t{count} * count / 2;  // as base::object_steps() counts them
    if (object_steps_ > base::kObjectStepsOfFileMax) return refuse("objects of too many members", ec);
    stack_.push_object(count);
    return count_value(ec);
  }
  bool on_array_begin(bj::error_code& ec) {
    ++depth_;
    if (list_ != List::kNone && depth_ > kListDepth + 1) return refuse("lists too deep", ec);
    if (list_ != List::kNone && depth_ == kListDepth + 1) items_ = 0;
    return true;
  }
  bool on_array_end(std::size_t count, bj::error_code& ec) {
    if (list_ != List::kNone) {
      if (depth_ == kListDepth) return close_list(ec);
      --depth_;
      return items_ == 2 || refuse("a vocabulary entry or merge that is no pair", ec);
    }
    --depth_;
    stack_.push_array(count);
    return count_value(ec);
  }

  bool on_key_part(bj::string_view part, std::size_t, bj::error_code& ec) { return join(part, ec); }
  bool on_key(bj::string_view part, std::size_t, bj::error_code& ec) {
    if (!join(part, ec)) return false;
    if (list_ != List::kNone) {
      document_.vocabulary.push_back({std::exchange(text_, {}), 0});
      return document_.vocabulary.size() <= Limits::kTokensMax || refuse("too many tokens", ec);
    }
    if (depth_ == 1) in_model_ = text_ == "model";
    stack_.push_key(text_);
    if (depth_ == 2 && in_model_) {
      if (text_ == "vocab") list_ = List::kVocabulary;
      if (text_ == "merges") list_ = List::kMerges;
      if ((list_ == List::kVocabulary && saw_vocabulary_) || (list_ == List::kMerges && saw_merges_)) {
        return refuse("a list given twice", ec);
      }
      saw_vocabulary_ = saw_vocabulary_ || list_ == List::kVocabulary;
      saw_merges_ = saw_merges_ || list_ == List::kMerges;
    }
    text_.clear();
    return true;
  }

  bool on_string_part(bj::string_view part, std::size_t, bj::error_code& ec) { return join(part, ec); }
  bool on_string(bj::string_view part, std::size_t, bj::error_code& ec) {
    if (!join(part, ec)) return false;
    if (list_ != List::kNone) return list_string(std::exchange(text_, {}), ec);
    stack_.push_string(text_);
    text_.clear();
    return count_value(ec);
  }

  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t number, bj::string_view, bj::error_code& ec) {
    if (list_ != List::kNone) return list_number(static_cast<double>(number), ec);
    stack_.push_int64(number);
    return count_value(ec);
  }
  bool on_uint64(std::uint64_t number, bj::string_view, bj::error_code& ec) {
    if (list_ != List::kNone) return list_number(static_cast<double>(number), ec);
    stack_.push_uint64(number);
    return count_value(ec);
  }
  bool on_double(double number, bj::string_view digits, bj::error_code& ec) {
    // Boost.JSON rounds the last bit of some numbers wrongly; scores decide ties.
    double exact = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exact);
    if (error == std::errc() && end == digits.data() + digits.size()) number = exact;
    if (list_ != List::kNone) return list_number(number, ec);
    stack_.push_double(number);
    return count_value(ec);
  }
  bool on_bool(bool value, bj::error_code& ec) {
    if (list_ != List::kNone) return refuse("a value of another kind in its lists", ec);
    stack_.push_bool(value);
    return count_value(ec);
  }
  bool on_null(bj::error_code& ec) {
    if (list_ != List::kNone && depth_ >= kListDepth) return refuse("a value of another kind in its lists", ec);
    list_ = List::kNone;
    stack_.push_null();
    return count_value(ec);
  }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }

 private:
  enum class List { kNone, kVocabulary, kMerges };

  bool refuse(std::string_view why, bj::error_code& ec) {
    refusal_ = why;
    ec = bj::error::exception;  // any; the refusal says what is wrong
    return false;
  }
  bool join(bj::string_view part, bj::error_code& ec) {
    const std::size_t bytes_max = list_ == List::kNone ? Limits::kChatTemplateBytesMax : 2 * Limits::kStringBytesMax;
    if (text_.size() + part.size() > bytes_max) return refuse("a string that is too long", ec);
    text_.append(part.data(), part.size());
    return true;
  }
  bool count_value(bj::error_code& ec) { return ++values_count_ <= kTreeValuesMax || refuse("too many values", ec); }
  bool close_list(bj::error_code& ec) {
    --depth_;
    list_ = List::kNone;
    stack_.push_null();
    return count_value(ec);
  }
  bool list_string(std::string text, bj::error_code& ec) {
    if (depth_ < kListDepth) return refuse("a vocabulary or merges that are no list", ec);
    ++items_;
    if (list_ == List::kVocabulary) {
      if (depth_ != kListDepth + 1 || items_ != 1) return refuse("a vocabulary entry that is no pair", ec);
      document_.vocabulary.push_back({std::move(text), 0});
      return document_.vocabulary.size() <= Limits::kTokensMax || refuse("too many tokens", ec);
    }
    if (depth_ == kListDepth || items_ == 1) {
      document_.merges.push_back({std::move(text), {}, depth_ > kListDepth});
      return document_.merges.size() <= Limits::kMergesMax || refuse("too many merges", ec);
    }
    document_.merges.back().right = std::move(text);
    return true;
  }
  bool list_number(double number, bj::error_code& ec) {
    const bool in_pair = depth_ == kListDepth + 1 && items_ == 1;
    const bool in_object = depth_ == kListDepth && document_.vocabulary_is_object;
    if (list_ != List::kVocabulary || (!in_pair && !in_object)) return refuse("a number in its lists", ec);
    ++items_;
    document_.vocabulary.back().number = number;
    return true;
  }

  JsonDocument document_;
  bj::value_stack stack_;
  std::string text_;
  std::string_view refusal_;
  std::size_t depth_ = 0, items_ = 0, values_count_ = 0;
  std::uint64_t object_steps_ = 0;  // of objects outside of the lists
  bool in_model_ = false, saw_vocabulary_ = false, saw_merges_ = false;
  List list_ = List::kNone;
};

}  // namespace

base::Result<JsonDocument> parse_document(std::string_view json, std::string_view source) {
  bj::parse_options options;
  options.max_depth = kDepthMax;
  bj::basic_parser<Handler> parser(options);
  bj::error_code ec;
  const std::size_t end = parser.write_some(false, json.data(), json.size(), ec);
  if (!parser.handler().refusal().empty()) {
    return base::fail(corrupt(source, fmt::format("at byte {}: it holds {}", end, parser.handler().refusal())));
  }
  if (ec) return base::fail(corrupt(source, fmt::format("at byte {}: no valid JSON ({})", end, ec.message())));
  if (json.find_first_not_of(" \t\r\n", end) != std::string_view::npos) {
    return base::fail(corrupt(source, fmt::format("at byte {}: something follows the value", end)));
  }
  return parser.handler().take();
}

base::Result<bj::value> parse_small(std::string_view json, std::string_view source) {
  bj::parse_options options;
  options.max_depth = kDepthMax;
  bj::error_code ec;
  bj::value value = base::parse_json(json, ec, {}, options, base::kObjectStepsOfFileMax);
  if (ec) return base::fail(corrupt(source, fmt::format("no valid JSON ({})", ec.message())));
  return value;
}

}  // namespace llorch::engine::io::tokenizer_json
