#pragma once
// Fields of requests that other systems' clients send, whatever the API. Codecs: gateway_fields.h.
#include <string>
#include <vector>

namespace llorch::wire {

// A field that is accepted and changes nothing.
struct Ignored {};
// A field that the API has and this server refuses, whatever its value but null.
struct Unsupported {};
// A field of what this server does not do, with the value that asks for nothing: a bool, or an integer. Any other is refused.
template <auto kNeutral>
struct Only {};

// On the wire a text or a list of texts.
struct StopTexts {
  std::vector<std::string> texts;
};

// On the wire a text, or a list; JSON that is handed on.
struct TextOrList {
  std::string json;
};

}  // namespace llorch::wire
