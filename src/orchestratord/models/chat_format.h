#pragma once
// How a model marks calls and thoughts in what it says, and how its template wants them told back.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/formats/format.h"
#include "text/formats/turn.h"
#include "text/tokenizer.h"

namespace llorch::orchestratord::models {

struct ChatFormat {
  text::formats::Format format = text::formats::Format::kGeneric;
  text::formats::Turn turn;
  // Control tokens that spell a marker of the format, by id. Control tokens have no text; those that end a generation stay
  // silent.
  std::vector<std::pair<base::TokenId, std::string>> markers;

  static ChatFormat of(std::string_view chat_template, const text::TokenizerData& data);
  // Empty: the token is no marker.
  std::string_view marker(base::TokenId token) const;
};

}  // namespace llorch::orchestratord::models
