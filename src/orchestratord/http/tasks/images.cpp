#include "orchestratord/http/tasks/images.h"

#include <fmt/format.h>

#include "base/base64.h"
#include "images/image_tokens.h"
#include "images/target_size.h"

namespace llorch::orchestratord::http::tasks {
namespace {

tl::unexpected<base::Error> of_messages(base::Error error) {
  return base::fail(std::move(error).with("field", std::string("messages")));
}

base::Result<MeasuredImages> measure(std::vector<std::string> base64, const wire::ModelImages& model) {
  const images::SizeRules rules{.unit = static_cast<std::uint32_t>(model.pixels_per_side),
                                .pixels_min = static_cast<std::uint64_t>(model.pixels_min),
                                .pixels_max = static_cast<std::uint64_t>(model.pixels_max),
                                .rows_max = static_cast<std::uint64_t>(model.tokens_max)};
  MeasuredImages out;
  std::uint64_t rows_together = 0;
  for (std::string& text : base64) {
    const auto file = base::base64_decode(text);
    if (!file) return images::image_error("image_base64", "an image is not valid base64 (RFC 4648, padded, one line)");
    const images::Header header = TRY(images::read_header(std::as_bytes(std::span(*file))));
    const images::Size size = TRY(images::target_size(header.shown(), rules));
    out.rows.push_back(images::rows_of(size, rules));
    out.digests.push_back(base::sha256(*file));
    out.images.push_back({.file = std::move(text), .width = size.width, .height = size.height});
    rows_together += out.rows.back();
  }
  if (rows_together > rules.rows_max) {
    return images::image_error("image_size",
                               fmt::format("the images take {} tokens together; a request may take {} here "
                                           "(orchestratord.worker_image_tokens_max): send fewer or smaller ones",
                                           rows_together, rules.rows_max));
  }
  return out;
}

}  // namespace

base::Result<MeasuredImages> measure_images(std::vector<std::string> base64, const wire::ModelFacts& facts) {
  if (base64.empty()) return MeasuredImages{};
  if (!facts.images) {
    return of_messages(images::image_error("images_unsupported",
                                           "this model, as it is served here, takes no images; leave them out, or name "
                                           "a model with a vision tower")
                           .value());
  }
  auto measured = measure(std::move(base64), *facts.images);
  if (!measured) return of_messages(std::move(measured).error());
  return measured;
}

base::Result<text::ChatPrompt> place_images(const MeasuredImages& measured, const wire::ModelFacts& facts,
                                            text::ChatPrompt prompt) {
  if (measured.images.empty()) return prompt;
  const base::TokenId image_token{static_cast<std::uint32_t>(facts.images->image_token)};
  auto tokens = images::expand_image_tokens(prompt.tokens, image_token, measured.rows);
  if (!tokens) return of_messages(std::move(tokens).error());
  prompt.tokens = std::move(*tokens);
  return prompt;
}

std::string prompt_digest(const text::ChatPrompt& prompt, const MeasuredImages& measured) {
  base::Sha256 hash;
  hash.update(prompt.text);
  for (const base::Sha256Digest& digest : measured.digests) hash.update(std::as_bytes(std::span(digest)));
  return base::to_hex(hash.digest());
}

}  // namespace llorch::orchestratord::http::tasks
