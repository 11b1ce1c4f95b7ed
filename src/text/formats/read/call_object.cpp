#include "text/formats/read/call_object.h"

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include "base/parse_json.h"

namespace llorch::text::formats {
namespace {

namespace bj = boost::json;

constexpr std::size_t kDepthMax = 64;
constexpr std::size_t kWordBytesMax = 256;  // a name, an id, a key

enum class Member { kOther, kName, kArguments, kId };

Member member_of(std::string_view key) {
  if (key == "name" || key == "tool_name") return Member::kName;
  if (key == "arguments" || key == "parameters") return Member::kArguments;
  if (key == "id" || key == "tool_call_id") return Member::kId;
  return Member::kOther;
}

}  // namespace

// Boost.JSON's events. Depth 1 is inside of the object.
class CallObject::Handler {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  explicit Handler(Kind kind) : kind_(kind) {}

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_object_begin(bj::error_code& ec) {
    if (depth_ == 1 && member_ == Member::kArguments) in_arguments_ = true;
    if (depth_ == 1 && (member_ == Member::kName || member_ == Member::kId)) return refuse(ec);
    if (++depth_ == 1 && kind_ == Kind::kArguments) in_arguments_ = true;
    return true;
  }
  bool on_object_end(std::size_t, bj::error_code& ec) {
    --depth_;
    if (depth_ == (kind_ == Kind::kArguments ? 0U : 1U)) in_arguments_ = false;
    return depth_ > 0 || end_of_call(ec);
  }
  bool on_array_begin(bj::error_code& ec) {
    if (depth_ == 1 && member_ != Member::kOther) return refuse(ec);
    ++depth_;
    return true;
  }
  bool on_array_end(std::size_t, bj::error_code&) {
    --depth_;
    return true;
  }
  bool on_key_part(bj::string_view part, std::size_t, bj::error_code& ec) { return word(part, ec); }
  bool on_key(bj::string_view part, std::size_t, bj::error_code& ec) {
    if (!word(part, ec)) return false;
    if (depth_ != 1 || kind_ == Kind::kArguments) return true;
    const std::string key = std::exchange(word_, {});
    member_ = member_of(key);
    if (member_ == Member::kOther) return kind_ != Kind::kCallOnly || key == "type" || refuse(ec);
    bool& seen = seen_[static_cast<std::size_t>(member_)];
    return !std::exchange(seen, true) || refuse(ec);
  }
  bool on_string_part(bj::string_view part, std::size_t, bj::error_code& ec) { return string(part, ec); }
  bool on_string(bj::string_view part, std::size_t, bj::error_code& ec) {
    if (!string(part, ec)) return false;
    if (depth_ != 1 || kind_ == Kind::kArguments) return true;
    if (member_ == Member::kName) {
      name_ = std::exchange(word_, {});
      return !name_.empty() || refuse(ec);
    }
    if (member_ == Member::kId) id_ = std::exchange(word_, {});
    if (member_ == Member::kArguments) return is_object(quoted_) || refuse(ec);
    return true;
  }
  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t number, bj::string_view, bj::error_code& ec) {
    if (depth_ == 1 && member_ == Member::kId) id_ = std::to_string(number);
    return scalar(ec);
  }
  bool on_uint64(std::uint64_t number, bj::string_view, bj::error_code& ec) {
    if (depth_ == 1 && member_ == Member::kId) id_ = std::to_string(number);
    return scalar(ec);
  }
  bool on_double(double, bj::string_view, bj::error_code& ec) { return scalar(ec); }
  bool on_bool(bool, bj::error_code& ec) { return scalar(ec); }
  bool on_null(bj::error_code& ec) { return scalar(ec); }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }

  bool is_done() const { return is_done_; }
  bool in_arguments() const { return in_arguments_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  const std::string& quoted() const { return quoted_; }

 private:
  static bool refuse(bj::error_code& ec) {
    ec = bj::error::exception;  // any
    return false;
  }
  static bool is_object(const std::string& text) {
    bj::error_code error;
    const bj::value value = base::parse_json(text, error, {}, {.max_depth = kDepthMax});
    return !error && value.is_object();
  }
  bool of_call() const { return depth_ == 1 && kind_ != Kind::kArguments; }
  bool scalar(bj::error_code& ec) {
    const bool is_needed = of_call() && (member_ == Member::kName || member_ == Member::kArguments);
    return !is_needed || refuse(ec);
  }
  // Keys, names and ids.
  bool word(bj::string_view part, bj::error_code& ec) {
    if (!of_call()) return true;
    word_.append(part.data(), part.size());
    return word_.size() <= kWordBytesMax || refuse(ec);
  }
  bool string(bj::string_view part, bj::error_code& ec) {
    if (!of_call() || member_ == Member::kOther) return true;
    if (member_ != Member::kArguments) return word(part, ec);
    quoted_.append(part.data(), part.size());
    return true;
  }
  bool end_of_call(bj::error_code& ec) {
    is_done_ = true;
    if (kind_ == Kind::kArguments) return true;
    const bool has_arguments = seen_[static_cast<std::size_t>(Member::kArguments)];
    return (!name_.empty() && (has_arguments || kind_ == Kind::kCall)) || refuse(ec);
  }

  Kind kind_;
  std::size_t depth_ = 0;
  Member member_ = Member::kOther;
  bool seen_[4] = {};
  bool in_arguments_ = false, is_done_ = false;
  std::string word_, name_, id_, quoted_;
};

struct CallObject::Parser {
  explicit Parser(Kind kind) : json({.max_depth = kDepthMax}, kind) {}
  bj::basic_parser<Handler> json;
};

CallObject::CallObject(Kind kind) : parser_(std::make_unique<Parser>(kind)) {}
CallObject::~CallObject() = default;

CallObject::Step CallObject::step(char c) {
  const bool was_in_arguments = parser_->json.handler().in_arguments();
  bj::error_code error;
  parser_->json.write_some(true, &c, 1, error);
  if (error) return Step::kBroken;
  took_argument_ = was_in_arguments || parser_->json.handler().in_arguments();
  return parser_->json.handler().is_done() ? Step::kDone : Step::kMore;
}

bool CallObject::has_name() const { return !name().empty(); }
const std::string& CallObject::name() const { return parser_->json.handler().name(); }
const std::string& CallObject::id() const { return parser_->json.handler().id(); }
bool CallObject::took_argument() const { return took_argument_; }
const std::string& CallObject::quoted_arguments() const { return parser_->json.handler().quoted(); }

}  // namespace llorch::text::formats
