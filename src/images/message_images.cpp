#include "images/message_images.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/parse_json.h"
#include "images/data_url.h"
#include "images/header.h"

namespace llorch::images {
namespace {

namespace bj = boost::json;

// What a template sees in the place of an image's bytes.
constexpr std::string_view kStandIn = "attached";

bool is_any_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

// Where a part's URL is, or null.
bj::string* url_of(bj::object& part) {
  if (bj::value* image = part.if_contains("image")) return image->if_string();
  bj::value* image = part.if_contains("image_url");
  if (image == nullptr) return nullptr;
  bj::object* object = image->if_object();
  bj::value* url = object == nullptr ? image : object->if_contains("url");
  return url == nullptr ? nullptr : url->if_string();
}

base::Result<> take_image(bj::object& part, MessageImages& out) {
  const bj::value* type = part.if_contains("type");
  const std::string_view kind = type != nullptr && type->is_string() ? std::string_view(type->get_string()) : "";
  if (is_any_of(kind, {"video", "video_url", "audio", "input_audio", "audio_url"}))
    return image_error("image_part", "this server reads text and images only; leave out video and audio");
  const bool names_image = is_any_of(kind, {"image", "image_url"});
  const bool holds_image = part.contains("image") || part.contains("image_url");
  if (!names_image && !holds_image) return {};
  bj::string* url = url_of(part);
  if (url == nullptr)
    return image_error("image_part", "a part of type image must hold `image` or `image_url` with a data: URL");
  out.base64.emplace_back(TRY(data_url_payload(*url)));
  *url = kStandIn;
  return {};
}

bj::array* content_of(bj::value& message) {
  bj::object* object = message.if_object();
  bj::value* content = object == nullptr ? nullptr : object->if_contains("content");
  return content == nullptr ? nullptr : content->if_array();
}

}  // namespace

base::Result<MessageImages> take_images(std::string messages, std::size_t images_max) {
  bj::error_code ec;
  bj::value root = base::parse_json(messages, ec);
  MessageImages out;
  if (ec || !root.is_array()) {
    out.messages = std::move(messages);
    return out;
  }
  for (std::size_t m = 0; m < root.get_array().size(); ++m) {
    bj::array* parts = content_of(root.get_array()[m]);
    for (std::size_t p = 0; parts != nullptr && p < parts->size(); ++p) {
      bj::object* part = (*parts)[p].if_object();
      if (part == nullptr) continue;
      if (auto taken = take_image(*part, out); !taken)
        return base::fail(std::move(taken).error().with("field", fmt::format("messages[{}].content[{}]", m, p)));
      if (out.base64.size() > images_max)
        return image_error("image_count", fmt::format("the messages hold more than {} images", images_max));
    }
  }
  // Without images the text stays byte for byte what the client sent.
  out.messages = out.base64.empty() ? std::move(messages) : bj::serialize(root);
  return out;
}

}  // namespace llorch::images
