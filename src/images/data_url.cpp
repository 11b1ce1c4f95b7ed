#include "images/data_url.h"

#include "images/header.h"

namespace llorch::images {

base::Result<std::string_view> data_url_payload(std::string_view url) {
  for (const std::string_view start : {"data:image/png;base64,", "data:image/jpeg;base64,", "data:image/jpg;base64,"}) {
    if (url.starts_with(start)) return url.substr(start.size());
  }
  if (url.starts_with("data:")) {
    return image_error("image_url",
                       "a data: URL of an image must begin with data:image/png;base64, or data:image/jpeg;base64,");
  }
  return image_error(
      "image_url",
      "an image must be a data: URL that holds its bytes (data:image/png;base64,...); addresses are never "
      "fetched");
}

}  // namespace llorch::images
