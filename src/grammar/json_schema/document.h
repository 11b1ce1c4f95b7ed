#pragma once
// A JSON Schema text and how to find one's way in it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "base/result.h"
#include "grammar/json_schema/numbers.h"
#include "grammar/limits.h"

namespace llorch::grammar::json_schema {

using Node = const boost::json::value*;  // a sub-schema of a document

class Document {
 public:
  // INVALID_PARAMS: too long, no JSON, nested too deep, a name twice in one object.
  static base::Result<Document> parse(std::string_view text, const Limits& limits);

  Node root() const { return &root_; }
  // The JSON pointer of `node`, "" for the root. Linear in the document: for messages.
  std::string pointer_of(Node node) const;
  // Where a `$ref` leads: "#" or "#/json/pointer".
  base::Result<Node> resolve(Node schema, std::string_view reference) const;

  // Names the keyword and the pointer of the schema it is in.
  tl::unexpected<base::Error> failure(Node schema, std::string_view keyword, std::string_view what) const;

  // Readers of one keyword of an object schema; nothing, or false, when it is absent.
  base::Result<std::optional<std::uint32_t>> count(Node schema, std::string_view keyword) const;
  base::Result<bool> flag(Node schema, std::string_view keyword) const;
  base::Result<std::optional<Decimal>> number(Node schema, std::string_view keyword) const;
  base::Result<std::optional<std::string_view>> string(Node schema, std::string_view keyword) const;
  base::Result<const boost::json::object*> object(Node schema, std::string_view keyword) const;
  base::Result<const boost::json::array*> array(Node schema, std::string_view keyword) const;

  // That `schema` is true, false or an object of keywords this compiler knows.
  base::Result<> check(Node schema) const;

 private:
  Document() = default;
  boost::json::value root_;
};

}  // namespace llorch::grammar::json_schema
