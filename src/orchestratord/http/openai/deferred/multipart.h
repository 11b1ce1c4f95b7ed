#pragma once
// multipart/form-data (RFC 7578) as clients send files. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::orchestratord::http::openai {

struct FormPart {
  std::string name;
  std::string filename;      // empty: a plain field
  std::string_view content;  // of the body that was parsed
};

inline constexpr std::size_t kFormPartsMax = 32;

// `content_type`: the header with its boundary. Errors: INVALID_PARAMS with details {field, reason}.
base::Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace llorch::orchestratord::http::openai
