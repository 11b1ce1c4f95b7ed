#pragma once
// The parser's view of the tokens, and its guard against deep nesting.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/syntax/lexer.h"

namespace llorch::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look(std::size_t ahead = 1) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  Token next() {
    Token token = current();
    skip();
    return token;
  }
  void skip(std::size_t count = 1) { at_ = std::min(at_ + count, tokens_.size() - 1); }
  bool skip_operator(std::string_view op) {
    if (!current().is_operator(op)) return false;
    skip();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!current().is_name(name)) return false;
    skip();
    return true;
  }
  base::Result<> expect_operator(std::string_view op) {
    if (skip_operator(op)) return {};
    return base::fail(unexpected(fmt::format("'{}'", op)));
  }
  base::Result<> expect_type(TokenType type, std::string_view what) {
    if (current().type != type) return base::fail(unexpected(what));
    skip();
    return {};
  }
  base::Result<std::string> expect_name(std::string_view what) {
    if (current().type != TokenType::kName) return base::fail(unexpected(what));
    return next().text;
  }
  base::Error unexpected(std::string_view wanted) const {
    return syntax_error(line(), fmt::format("expected {}, found {}", wanted, describe(current())));
  }
  base::Error error(std::string_view what) const { return syntax_error(line(), what); }

  // Levels of nesting that are open; every recursive rule holds one of these.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) { ++stream_.nesting_; }
    ~Level() { --stream_.nesting_; }
    Level(const Level&) = delete;
    bool too_deep() const { return stream_.nesting_ > kTemplateNestingMax; }

   private:
    TokenStream& stream_;
  };
  base::Error too_deep() const { return error(fmt::format("nested deeper than {} levels", kTemplateNestingMax)); }

 private:
  static std::string describe(const Token& token) {
    switch (token.type) {
      case TokenType::kData: return "text";
      case TokenType::kVariableBegin: return "'{{'";
      case TokenType::kVariableEnd: return "'}}'";
      case TokenType::kBlockBegin: return "'{%'";
      case TokenType::kBlockEnd: return "'%}'";
      case TokenType::kName:
      case TokenType::kOperator: return fmt::format("'{}'", token.text.substr(0, 40));
      case TokenType::kString: return "a string";
      case TokenType::kInteger:
      case TokenType::kFloat: return "a number";
      case TokenType::kEnd: return "the end of the template";
    }
    return {};
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace llorch::text::jinja
