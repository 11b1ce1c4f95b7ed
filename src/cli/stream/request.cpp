#include "cli/stream/request.h"

#include <fmt/core.h>

#include <boost/json.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/base64.h"
#include "base/file.h"
#include "engine/io/model_layout.h"
#include "wire/json.h"

namespace llorch::cli::stream {
namespace {

namespace bj = boost::json;
using base::ErrorCode;

constexpr std::size_t kMessagesBytesMax = 64 << 20;
constexpr std::size_t kImageBytesMax = 32 << 20;

// What a user says: the text, behind the images if there are any.
base::Result<bj::value> content_of(const std::vector<std::string>& images, const std::string& text) {
  if (images.empty()) return bj::value(text);
  bj::array parts;
  for (const std::string& path : images) parts.push_back(TRY(image_part(path)));
  parts.push_back(bj::object{{"type", "text"}, {"text", text}});
  return bj::value(std::move(parts));
}

// `prompt`, or `messages` when the options ask for a conversation.
base::Result<> read_input(const RunOptions& options, wire::SubmitRequest& request) {
  if (!options.messages.empty()) {
    const std::string text = TRY(base::read_file(options.messages, kMessagesBytesMax));
    boost::system::error_code ec;
    if (const bj::value parsed = bj::parse(text, ec); ec || !parsed.is_array()) {
      return base::fail(ErrorCode::kInvalidParams, options.messages + " holds no JSON array of messages");
    }
    request.messages = wire::JsonArray{text};
    return {};
  }
  std::string text = options.prompt ? *options.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (!options.chat && options.images.empty()) {
    request.prompt = {.text = std::move(text)};
    request.suffix = options.suffix;
    return {};
  }
  bj::array messages;
  if (options.system) messages.push_back(bj::object{{"role", "system"}, {"content", *options.system}});
  bj::value content = TRY(content_of(options.images, text));
  messages.push_back(bj::object{{"role", "user"}, {"content", std::move(content)}});
  request.messages = wire::JsonArray{bj::serialize(messages)};
  return {};
}

// Absent when the options wish for nothing: the request says no more than its user did.
std::optional<wire::Placement> placement_of(const RunOptions& options) {
  wire::Placement placement{.pin_pool_id = {},
                            .prefer_pools = options.prefer_pools,
                            .avoid_pools = options.avoid_pools,
                            .require_device_mask = {},
                            .allow_fallback = !options.no_fallback};
  if (!options.pin_pool.empty()) {
    placement.mode = wire::PlacementMode::kPin;
    placement.pin_pool_id = options.pin_pool;
  } else if (!options.prefer_pools.empty()) {
    placement.mode = wire::PlacementMode::kPrefer;
  }
  if (!options.device_mask.empty()) placement.require_device_mask = options.device_mask;
  return placement == wire::Placement{} ? std::nullopt : std::optional(std::move(placement));
}

}  // namespace

bool is_path(std::string_view model) {
  const std::string_view before_slash = model.substr(0, model.find('/'));
  return before_slash.size() != model.size() && before_slash.find(':') == std::string_view::npos;
}

base::Result<> check_path(const std::string& model) {
  if (!is_path(model) || model_reference(model) != model) return {};
  std::error_code ec;
  if (std::filesystem::exists(model, ec)) {
    return base::fail(
        ErrorCode::kModelNotFound,
        fmt::format("{} is neither a .gguf file nor a Hugging Face directory (with a config.json)", model));
  }
  return base::fail(ErrorCode::kModelNotFound, fmt::format("there is no file {}", model));
}

std::string model_reference(const std::string& model) {
  std::error_code ec;
  const bool file = engine::io::has_gguf_name(model) && std::filesystem::exists(model, ec);
  if (file || std::filesystem::exists(std::filesystem::path(model) / "config.json", ec)) {
    if (const auto path = std::filesystem::canonical(model, ec); !ec) return "file:" + path.string();
  }
  return model;
}

base::Result<bj::object> image_part(const std::string& path) {
  const std::string file = TRY(base::read_file(path, kImageBytesMax));
  const std::string_view kind = file.starts_with("\x89PNG") ? "png" : file.starts_with("\xFF\xD8") ? "jpeg" : "";
  if (kind.empty()) return base::fail(ErrorCode::kInvalidParams, path + " is neither a PNG nor a JPEG file");
  return bj::object{{"type", "image"},
                    {"image", fmt::format("data:image/{};base64,{}", kind, base::base64_encode(file))}};
}

wire::SubmitRequest request_without_input(const RunOptions& options) {
  wire::SubmitRequest request{.model = model_reference(options.model),
                              .max_tokens = options.max_tokens,
                              .session_id = options.session,
                              .temperature = options.temperature,
                              .sampling = options.sampling,
                              .stop = options.stop,
                              .seed = options.seed,
                              .on_disconnect = wire::OnDisconnect::kResume};
  request.placement = placement_of(options);
  request.priority = wire::enum_from_name<wire::Priority>(options.priority).value_or(wire::Priority::kInteractive);
  return request;
}

base::Result<wire::SubmitRequest> make_request(const RunOptions& options) {
  wire::SubmitRequest request = request_without_input(options);
  TRY(read_input(options, request));
  return request;
}

}  // namespace llorch::cli::stream
