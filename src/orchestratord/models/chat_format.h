#pragma once
// How a model marks calls and thoughts in what it says, and how its template wants them told back.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/config.h"
#include "text/formats/format.h"
#include "text/formats/turn.h"
#include "text/tokenizer.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::models {

// Control tokens and their spellings, by id. They have no text; those that end a generation stay silent and are left out.
using ControlTokens = std::vector<std::pair<base::TokenId, std::string>>;
ControlTokens control_tokens(const text::TokenizerData& data);

struct ChatFormat {
  text::formats::Format format = text::formats::Format::kGeneric;
  wire::ChatFormatSource source = wire::ChatFormatSource::kDefault;  // who says so
  text::formats::Turn turn;
  ControlTokens markers;  // of `tokens`, the first that spells each marker of the format

  // By what the template spells. `tokens`: all of the model's.
  static ChatFormat of(std::string_view chat_template, const ControlTokens& tokens);
  // As the configuration has it; what the template wants told back stays.
  ChatFormat in(text::formats::Format configured, const ControlTokens& tokens) const;
  // Empty: the token is no marker.
  std::string_view marker(base::TokenId token) const;
};

// What is used and why, for people. `without_tools`: of requests that offer none.
wire::ChatFormatFacts chat_format_facts(const ChatFormat& with_tools, const ChatFormat& without_tools);

// Whether models.chat_format names formats that there are. Errors: CONFIG_INVALID, which lists them.
base::Result<> check_chat_formats(const config::ModelsConfig& config);

}  // namespace llorch::orchestratord::models
