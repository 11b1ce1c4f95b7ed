#pragma once
// Text with its origin, so that what a user wrote can never become a control token.
#include <cstdint>
#include <string>

namespace llorch::text {

enum class TextOrigin : std::uint8_t {
  kTemplate,  // written by the model's chat template or by us: may spell control tokens
  kData,      // came from outside, e.g. in a message: never spells one
};

struct TextRun {
  std::string text;
  TextOrigin origin = TextOrigin::kData;

  bool operator==(const TextRun&) const = default;
};

}  // namespace llorch::text
