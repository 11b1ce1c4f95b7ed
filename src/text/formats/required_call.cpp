#include "text/formats/required_call.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/keyed_hash.h"
#include "text/formats/read/values.h"
#include "text/formats/syntax.h"

namespace llorch::text::formats {
namespace {

namespace bj = boost::json;

tl::unexpected<base::Error> refused_choice(std::string_view field, std::string_view reason, std::string message) {
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::string(field))
                        .with("reason", std::string(reason)));
}

// As a literal of GBNF; an empty one matches nothing but the empty string.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("\\x{:02X}", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The marker that is a control token of the model and that `text` begins with, the longest; null: none.
const Marker* marker_at(std::string_view text, Markers markers) {
  const Marker* longest = nullptr;
  for (const Marker& marker : markers) {
    const bool is_longer = longest == nullptr || marker.second.size() > longest->second.size();
    if (is_longer && text.starts_with(marker.second)) longest = &marker;
  }
  return longest;
}

// What the format itself writes, its markers as the tokens that the model has for them. REQUIRES markers are not empty.
std::string spelled(std::string_view text, Markers markers) {
  std::string out, plain;
  for (std::size_t i = 0; i < text.size();) {
    const Marker* marker = marker_at(text.substr(i), markers);
    if (marker == nullptr) {
      plain += text[i++];
      continue;
    }
    if (!plain.empty()) out += literal(std::exchange(plain, {})) + " ";
    out += fmt::format("<[{}]> ", base::index(marker->first));
    i += marker->second.size();
  }
  if (!plain.empty() || out.empty()) return out + literal(plain);
  out.pop_back();
  return out;
}

std::string escaped_in_set(char c) {
  return c == ']' || c == '^' || c == '-' || c == '\\' ? std::string{'\\', c} : std::string{c};
}

// Any text without `stop`, nor a beginning of it with the stop's first byte behind it. REQUIRES that this byte stands in
// the stop once.
std::string text_without(std::string_view stop) {
  const std::string first = escaped_in_set(stop.front());
  std::string tail = fmt::format("[^{}{}]", first, escaped_in_set(stop.back()));
  for (std::size_t i = stop.size() - 2; i > 0; --i) {
    tail = fmt::format("([^{}{}] | {} {})", first, escaped_in_set(stop[i]), literal(stop.substr(i, 1)), tail);
  }
  return fmt::format("([^{}] | {}+ {})*", first, literal(stop.substr(0, 1)), tail);
}

bool holds_reference(const bj::value& value) {
  if (const bj::array* array = value.if_array()) return std::any_of(array->begin(), array->end(), holds_reference);
  const bj::object* object = value.if_object();
  return object != nullptr && std::any_of(object->begin(), object->end(), [](const auto& member) {
           return member.key() == "$ref" || holds_reference(member.value());
         });
}

// Rules of GBNF, until they are longer than a grammar may be.
class Rules {
 public:
  // `otherwise`: what a client can do besides making its schemas smaller.
  Rules(std::size_t bytes_max, std::string_view otherwise) : bytes_max_(bytes_max), otherwise_(otherwise) {}

  base::Result<> add(std::string_view text) {
    TRY(check(text.size()));
    text_ += text;
    return {};
  }
  // That there is room for `more` bytes.
  base::Result<> check(std::size_t more) const {
    if (text_.size() + more <= bytes_max_) return {};
    return refused_choice("tools", "length",
                          fmt::format("the grammar of the calls has more than {} bytes; make the tools' "
                                      "schemas smaller, or {}",
                                      bytes_max_, otherwise_));
  }
  std::size_t size() const { return text_.size(); }
  // Drops what was added since there were `size` bytes.
  void cut(std::size_t size) { text_.resize(size); }
  std::string take() && { return std::move(text_); }

 private:
  std::size_t bytes_max_;
  std::string_view otherwise_;
  std::string text_;
};

// One tool's arguments in one notation.
class ArgumentRules {
 public:
  ArgumentRules(const Tool& tool, std::string prefix, const Syntax& syntax, Markers markers, Rules& rules)
      : tool_(tool), prefix_(std::move(prefix)), syntax_(syntax), markers_(markers), rules_(rules) {}

  // An expression of GBNF; what it needs is added to the rules.
  base::Result<std::string> write() {
    const Body body = syntax_.spelling.arguments;
    if (body == Body::kJson) return "%json " + bj::serialize(whole_schema());
    const std::string inner = TRY(members(tool_.parameters, 0));
    return body == Body::kBraces ? "\"{\" " + inner + " \"}\"" : inner;
  }

  // The same of any arguments that the notation can write.
  base::Result<std::string> write_any() {
    constexpr std::string_view kName = "[A-Za-z0-9_.\\-]+";
    switch (syntax_.spelling.arguments) {
      case Body::kPythonic: return fmt::format("({0} \"=\" %json {{}} (\", \" {0} \"=\" %json {{}})*)?", kName);
      case Body::kXml:
        return fmt::format("({} {} {} {} {})*", spelled("<parameter=", markers_), kName, literal(">\n"),
                           text_without("</parameter>"), spelled("\n</parameter>\n", markers_));
      case Body::kBraces: {
        const std::string name = fmt::format("{}-any", prefix_);
        const std::string quote = spelled(syntax_.calls[0].quote, markers_);
        TRY(rules_.add(
            fmt::format("{0}-object ::= \"{{\" ({1} \":\" {0} (\",\" {1} \":\" {0})*)? \"}}\"\n", name, kName)));
        TRY(
            rules_.add(fmt::format("{0} ::= {0}-object | \"[\" ({0} (\",\" {0})*)? \"]\" | {1} {2} {1} | "
                                   "%json {{\"type\":[\"number\",\"boolean\",\"null\"]}}\n",
                                   name, quote, text_without(syntax_.calls[0].quote))));
        return name + "-object";
      }
      default: return R"(%json {"type":"object"})";
    }
  }

 private:
  bj::object whole_schema() const {
    bj::object schema = tool_.parameters;
    if (schema.empty()) schema = {{"properties", bj::object()}, {"additionalProperties", false}};
    schema["type"] = "object";
    schema.erase("nullable");  // a call has arguments
    return schema;
  }

  tl::unexpected<base::Error> unsupported(std::string_view what) const {
    return refused_choice("tools", "combination",
                          fmt::format("tool {}: {} calls cannot be held to {}; leave it out, or do not demand a call",
                                      tool_.name, syntax_.name, what));
  }

  // The members in declared order, the optional ones or not, with the notation's separator between them. The rule
  // PREFIX-D-m-I is member I; -a-I goes on at it with none written, -b-I with some.
  base::Result<std::string> members(const bj::object& schema, std::size_t depth) {
    if (depth == kNestingMax) return unsupported("a schema nested so deep");
    const bj::value* properties = schema.if_contains("properties");
    static const bj::object kNone;
    const bj::object& declared = properties != nullptr && properties->is_object() ? properties->get_object() : kNone;
    const Names required = TRY(required_names(schema, declared));
    const std::string name = fmt::format("{}-{}", prefix_, count_++);
    std::size_t i = 0;
    for (const auto& [key, value] : declared) {
      const std::string_view spelled_key(key.data(), key.size());
      TRY(rules_.add(fmt::format("{}-m-{} ::= {}\n", name, i, TRY(member(spelled_key, value, depth)))));
      const auto rule = [&](char state, std::string_view before) {
        const std::string without =
            required.contains(spelled_key) ? "" : fmt::format(" | {}-{}-{}", name, state, i + 1);
        return rules_.add(fmt::format("{0}-{1}-{2} ::= {3} {0}-m-{2} {0}-b-{4}{5}\n", name, state, i, literal(before),
                                      i + 1, without));
      };
      TRY(rule('a', ""));
      TRY(rule('b', separator()));
      ++i;
    }
    TRY(rules_.add(fmt::format("{0}-a-{1} ::= \"\"\n{0}-b-{1} ::= \"\"\n", name, i)));
    return name + "-a-0";
  }

  std::string_view separator() const {
    switch (syntax_.spelling.arguments) {
      case Body::kPythonic: return ", ";
      case Body::kBraces: return ",";
      default: return "";
    }
  }

  using Names = std::unordered_set<std::string_view, base::KeyedHash>;
  base::Result<Names> required_names(const bj::object& schema, const bj::object& declared) const {
    Names names;
    const bj::value* required = schema.if_contains("required");
    if (required == nullptr) return names;
    if (!required->is_array()) return unsupported("`required` that is no array");
    for (const bj::value& name : required->get_array()) {
      if (!name.is_string() || !declared.contains(name.get_string())) {
        return unsupported("`required` members that `properties` does not declare");
      }
      names.emplace(name.get_string().data(), name.get_string().size());
    }
    return names;
  }

  base::Result<std::string> member(std::string_view key, const bj::value& schema, std::size_t depth) {
    const bool is_plain = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!is_plain) return unsupported("parameters whose names are not of letters, digits and _");
    if (!schema.is_object()) return unsupported("parameters without a schema");
    switch (syntax_.spelling.arguments) {
      case Body::kPythonic: return literal(fmt::format("{}=", key)) + " " + json_value(schema.get_object());
      case Body::kXml:
        return spelled(fmt::format("<parameter={}>\n", key), markers_) + " " + TRY(xml_value(schema)) + " " +
               spelled("\n</parameter>\n", markers_);
      default: return literal(fmt::format("{}:", key)) + " " + TRY(brace_value(schema, depth));
    }
  }

  // A parameter's schema alone, with the definitions if it refers to any.
  std::string json_value(bj::object schema) const {
    if (!holds_reference(schema)) return "%json " + bj::serialize(schema);
    for (const std::string_view definitions : {"$defs", "definitions"}) {
      const bj::value* shared = tool_.parameters.if_contains(definitions);
      if (shared != nullptr) schema[definitions] = *shared;
    }
    return "%json " + bj::serialize(schema);
  }

  base::Result<std::string> xml_value(const bj::value& schema) const {
    if (is_string_schema(&schema)) return string_value(schema.get_object(), "</parameter>");
    return json_value(schema.get_object());
  }

  // A string as it is, without quotes and escapes.
  base::Result<std::string> string_value(const bj::object& schema, std::string_view stop) const {
    for (const std::string_view keyword :
         {"minLength", "maxLength", "pattern", "format", "allOf", "anyOf", "oneOf", "$ref", "not"}) {
      if (schema.contains(keyword)) return unsupported(fmt::format("`{}` of a string", keyword));
    }
    const bj::value* listed = schema.if_contains("enum");
    const bj::value* constant = schema.if_contains("const");
    if (listed == nullptr && constant == nullptr) return text_without(stop);
    if (listed != nullptr && !listed->is_array()) return unsupported("an `enum` that is no list");
    std::string choice;
    for (const bj::value& value : listed != nullptr ? listed->get_array() : bj::array{*constant}) {
      if (!value.is_string() || (constant != nullptr && value != *constant)) continue;
      const std::string_view text(value.get_string().data(), value.get_string().size());
      if (text.find(stop) != std::string_view::npos) return unsupported("values that hold the format's markers");
      choice += (choice.empty() ? "" : " | ") + literal(text);
    }
    if (choice.empty()) return unsupported("an `enum` without a value left");
    return "(" + choice + ")";
  }

  base::Result<std::string> brace_value(const bj::value& schema, std::size_t depth) {
    if (!schema.is_object()) return unsupported("`items` that is no schema");
    const bj::object& keywords = schema.get_object();
    const std::string quote = spelled(syntax_.calls[0].quote, markers_);
    if (is_string_schema(&schema)) {
      return quote + " " + TRY(string_value(keywords, syntax_.calls[0].quote)) + " " + quote;
    }
    const bj::value* type = keywords.if_contains("type");
    if (type == nullptr || !type->is_string()) return unsupported("parameters of more than one type");
    if (type->get_string() == "object") {
      for (const std::string_view keyword : {"minProperties", "maxProperties", "patternProperties", "propertyNames",
                                             "allOf", "anyOf", "oneOf", "$ref", "enum", "const"}) {
        if (keywords.contains(keyword)) return unsupported(fmt::format("`{}` of an object", keyword));
      }
      return "\"{\" " + TRY(members(keywords, depth + 1)) + " \"}\"";
    }
    if (type->get_string() != "array") return json_value(keywords);
    return list_value(keywords, depth);
  }

  base::Result<std::string> list_value(const bj::object& schema, std::size_t depth) {
    if (depth == kNestingMax) return unsupported("a schema nested so deep");
    for (const std::string_view keyword : {"prefixItems", "uniqueItems", "minItems", "maxItems", "contains", "allOf",
                                           "anyOf", "oneOf", "$ref", "enum", "const"}) {
      if (schema.contains(keyword)) return unsupported(fmt::format("`{}` of an array", keyword));
    }
    const bj::value* items = schema.if_contains("items");
    if (items == nullptr) return unsupported("an array without `items`");
    const std::string item = TRY(brace_value(*items, depth + 1));
    const std::string name = fmt::format("{}-{}", prefix_, count_++);
    TRY(rules_.add(fmt::format("{} ::= {}\n", name, item)));
    return fmt::format("\"[\" ({0} (\",\" {0})*)? \"]\"", name);
  }

  const Tool& tool_;
  std::string prefix_;
  const Syntax& syntax_;
  Markers markers_;
  Rules& rules_;
  std::size_t count_ = 0;  // of objects and arrays so far
};

// What stands before the calls.
std::string thought_before(const Syntax& syntax, RequiredCall::Thought thought, Markers markers) {
  const std::string_view close = syntax.thought.close;
  if (thought == RequiredCall::Thought::kNone || close.empty()) return "";
  const Spelling& spelling = syntax.spelling;
  // A header ends a thought as well.
  const std::string text = text_without(syntax.has_channels ? "<|" : close);
  const std::string behind =
      spelling.behind_thought.empty() ? "[ \\n]{0,2}" : spelled(spelling.behind_thought, markers);
  const std::string inner = fmt::format("{} {} {}", text, spelled(close, markers), behind);
  if (thought == RequiredCall::Thought::kIsOpen) return inner;
  const std::string_view open = spelling.thought_open.empty() ? syntax.thought.open : spelling.thought_open;
  return fmt::format("({} {})?", spelled(open, markers), inner);
}

}  // namespace

base::Result<std::string> required_call(Format format, const Tools& tools, const RequiredCall& requirement,
                                        Markers markers) {
  const Syntax& syntax = syntax_of(format);
  const Spelling& spelling = syntax.spelling;
  if (tools.empty()) return refused_choice("tool_choice", "combination", "a call is demanded and there are no tools");
  if (requirement.name && tools.find(*requirement.name) == nullptr) {
    return refused_choice("tool_choice", "unknown", "tool_choice names a tool that is not in tools");
  }
  std::string calls;
  Rules rules(requirement.text_bytes_max,
              requirement.answer ? "leave the output's format out" : "do not demand a call");
  for (std::size_t i = 0; i < tools.all().size(); ++i) {
    const Tool& tool = tools.all()[i];
    if (requirement.name && tool.name != *requirement.name) continue;
    ArgumentRules writer(tool, fmt::format("tool-{}", i), syntax, markers, rules);
    const std::size_t size_before = rules.size();
    auto arguments = requirement.loose.contains(tool.name) ? writer.write_any() : writer.write();
    if (!arguments && requirement.answer) {
      rules.cut(size_before);
      arguments = writer.write_any();
    }
    TRY(rules.add(fmt::format("tool-{} ::= {} {} {} {} {}\n", i, spelled(spelling.open, markers), literal(tool.name),
                              spelled(spelling.behind_name, markers), TRY(std::move(arguments)),
                              spelled(spelling.close, markers))));
    calls += fmt::format("{}tool-{}", calls.empty() ? "" : " | ", i);
  }
  const bool allows_several = requirement.several && spelling.allows_several;
  std::string output =
      fmt::format("{} call {} {}", spelled(spelling.list_open, markers),
                  allows_several ? fmt::format("({} call)*", spelled(spelling.separator, markers)) : "",
                  spelled(spelling.list_close, markers));
  if (requirement.answer) {
    output = fmt::format("({} | {} %json {})", output, spelled(spelling.answer_open, markers), *requirement.answer);
  }
  const std::string root =
      fmt::format("root ::= {} {}\ncall ::= {}\n", thought_before(syntax, requirement.thought, markers), output, calls);
  TRY(rules.check(root.size()));
  return root + std::move(rules).take();
}

}  // namespace llorch::text::formats
