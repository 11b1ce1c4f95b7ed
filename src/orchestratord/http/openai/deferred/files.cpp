#include "orchestratord/http/openai/deferred/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <charconv>

#include "base/utf8.h"
#include "orchestratord/http/blob_sender.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/deferred/list_page.h"
#include "orchestratord/http/deferred/owned_blobs.h"
#include "orchestratord/http/openai/deferred/multipart.h"
#include "orchestratord/http/tasks/kept_facts.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::ErrorCode;
using chat::refused;
using store::blobs::Blob;
using tasks::flag_of;
using tasks::object_of;
using tasks::text_of;

constexpr std::size_t kFilenameBytesMax = 255;
constexpr std::int64_t kExpiresAfterSMin = 3600, kExpiresAfterSMax = 30 * 24 * 3600;

std::string file_object(const Blob& blob) {
  const FileFacts facts = decode_file(blob);
  const auto& expires_ms = blob.facts.expires_unix_ms;
  return json::serialize(json::object{{"id", blob.id},
                                      {"object", "file"},
                                      {"bytes", blob.content_bytes},
                                      {"created_at", blob.facts.created_unix_ms / 1000},
                                      {"expires_at", expires_ms ? json::value(*expires_ms / 1000) : json::value()},
                                      {"filename", facts.filename},
                                      {"purpose", facts.purpose},
                                      {"status", "processed"},
                                      {"status_details", nullptr}});
}

struct Upload {
  std::string filename = "upload.jsonl";
  std::string_view content;
  std::optional<std::int64_t> expires_after_s{};
};

struct ExpiresAfter {
  std::optional<std::string_view> anchor{}, seconds{};
};

base::Result<std::optional<std::int64_t>> seconds_of(const ExpiresAfter& wanted) {
  if (!wanted.anchor && !wanted.seconds) return std::nullopt;
  if (wanted.anchor != "created_at") {
    return refused("expires_after[anchor]", "unsupported", "expires_after[anchor] is created_at");
  }
  const std::string_view text = wanted.seconds.value_or("");
  std::int64_t seconds = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = ec == std::errc() && end == text.data() + text.size();
  if (whole && seconds >= kExpiresAfterSMin && seconds <= kExpiresAfterSMax) return seconds;
  return refused(
      "expires_after[seconds]", "range",
      fmt::format("expires_after[seconds] is a whole number from {} to {}", kExpiresAfterSMin, kExpiresAfterSMax));
}

base::Result<Upload> upload_of(const net::Request& request) {
  const auto parts = TRY(parse_form(request.headers.get("Content-Type").value_or(""), request.body));
  std::optional<Upload> file;
  std::string_view purpose;
  ExpiresAfter expires_after;
  for (const FormPart& part : parts) {
    if (part.name == "file") {
      file = Upload{.content = part.content};
      if (!part.filename.empty()) file->filename = part.filename;
    } else if (part.name == "purpose") {
      purpose = part.content;
    } else if (part.name == "expires_after[anchor]") {
      expires_after.anchor = part.content;
    } else if (part.name == "expires_after[seconds]") {
      expires_after.seconds = part.content;
    } else {
      return refused("form", "unknown",
                     "the form has the parts file, purpose, expires_after[anchor] and expires_after[seconds]");
    }
  }
  if (!file) return refused("file", "missing", "the form has no part named file");
  if (purpose != "batch") {
    return refused("purpose", "unsupported", "purpose must be batch: nothing else here reads files");
  }
  if (file->filename.size() > kFilenameBytesMax || !base::is_valid_utf8(file->filename)) {
    return refused("file", "range", "a file's name is UTF-8 of up to 255 bytes");
  }
  file->expires_after_s = TRY(seconds_of(expires_after));
  return *std::move(file);
}

}  // namespace

std::string encode_file(const FileFacts& facts) {
  return json::serialize(
      json::object{{"filename", facts.filename}, {"purpose", facts.purpose}, {"hidden", facts.hidden}});
}

FileFacts decode_file(const Blob& file) {
  const json::object facts = object_of(file.facts.body);
  return {text_of(facts, "filename"), text_of(facts, "purpose"), flag_of(facts, "hidden")};
}

void Files::create(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto upload = upload_of(request);
  if (!upload) return refuse(context_, exchange, upload.error());
  const std::string id = "file-" + base::uuid_v4(*context_.entropy);
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  std::int64_t keep_ms = context_.config->orchestratord.files.retention_ms;
  if (upload->expires_after_s) keep_ms = std::min(keep_ms, *upload->expires_after_s * 1000);
  auto kept = context_.blobs->create(id,
                                     {.kind = std::string(kKind),
                                      .tenant_id = request.peer.principal.account,
                                      .created_unix_ms = now_ms,
                                      .expires_unix_ms = now_ms + keep_ms,
                                      .body = encode_file({.filename = upload->filename, .purpose = "batch"})},
                                     upload->content);
  if (!kept) return refuse(context_, exchange, std::move(kept).error());
  exchange->respond(net::http::json_response(200, file_object(*context_.blobs->find(id))));
}

const Blob* Files::find(const net::Request& request, const net::ExchangePtr& exchange) const {
  const Blob* blob = deferred::find_owned(context_, kKind, request.path_param("id"), request.peer.principal);
  if (blob != nullptr && !decode_file(*blob).hidden) return blob;
  refuse(context_, exchange,
         {ErrorCode::kNotFound, "no file has this id: it never was, was deleted, or has expired", {}});
  return nullptr;
}

void Files::list(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto purpose = request.query_param("purpose");
  std::vector<const Blob*> blobs = deferred::list_owned(context_, kKind, request.peer.principal);
  std::erase_if(blobs, [&](const Blob* blob) {
    const FileFacts facts = decode_file(*blob);
    return facts.hidden || (purpose && facts.purpose != *purpose);
  });
  auto page = deferred::list_page(request, {.usual = kListMax, .most = kListMax}, deferred::ids_of(blobs),
                                  [&](std::size_t index) { return file_object(*blobs[index]); });
  if (!page) return refuse(context_, exchange, page.error());
  exchange->respond(net::http::json_response(200, *std::move(page)));
}

void Files::show(const net::Request& request, const net::ExchangePtr& exchange) {
  if (const Blob* blob = find(request, exchange)) {
    exchange->respond(net::http::json_response(200, file_object(*blob)));
  }
}

void Files::content(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  send_blobs(context_, {blob->id}, "application/octet-stream", exchange);
}

void Files::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  if (batches_.reads(blob->id)) {
    return refuse(context_, exchange,
                  {ErrorCode::kConflict, "a batch reads this file; cancel the batch, or wait for its end", {}});
  }
  const std::string id = blob->id;
  if (auto erased = context_.blobs->erase(id); !erased) return refuse(context_, exchange, std::move(erased).error());
  const json::object deleted{{"id", id}, {"object", "file"}, {"deleted", true}};
  exchange->respond(net::http::json_response(200, json::serialize(deleted)));
}

}  // namespace llorch::orchestratord::http::openai
