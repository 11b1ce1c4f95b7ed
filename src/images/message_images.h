#pragma once
// Images among the content parts of a conversation, told apart from its text before a template sees it.
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::images {

struct MessageImages {
  std::string messages;             // the array with every image replaced by a short word
  std::vector<std::string> base64;  // the image files in the order of the messages, as the request spelled them
};

// Content parts are objects in a message's `content` array. An image is a part with `image` (a data: URL) or `image_url`
// (such, or an object with it under `url`), of type `image` or `image_url`; the part keeps its keys, so that the model's
// template finds it. Text that is no array of messages comes back as it is, for whoever reads messages to refuse.
// Errors: INVALID_PARAMS with details {field, reason}: image_url (data_url_payload), image_part (a part of an image's type
// without an image, or of a type that is never read: video, audio), image_count (more than `images_max`).
base::Result<MessageImages> take_images(std::string messages, std::size_t images_max);

}  // namespace llorch::images
