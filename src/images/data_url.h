#pragma once
#include <string_view>

#include "base/result.h"

namespace llorch::images {

// The base64 text of data:image/png;base64,... or data:image/jpeg;base64,... (RFC 2397); not decoded. Anything else is
// INVALID_PARAMS with details reason = image_url: addresses are never fetched.
base::Result<std::string_view> data_url_payload(std::string_view url);

}  // namespace llorch::images
