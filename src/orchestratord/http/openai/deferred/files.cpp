#include "orchestratord/http/openai/deferred/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <charconv>

#include "base/utf8.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/openai/deferred/batches.h"
#include "orchestratord/http/openai/deferred/multipart.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tenancy.h"

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
constexpr std::size_t kListMax = 10'000;
constexpr std::size_t kSendBytes = 256 << 10;
constexpr std::size_t kQueuedBytesMax = 1 << 20;

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
};

base::Result<Upload> upload_of(const net::Request& request) {
  const auto parts = TRY(parse_form(request.headers.get("Content-Type").value_or(""), request.body));
  std::optional<Upload> file;
  std::string_view purpose;
  for (const FormPart& part : parts) {
    if (part.name == "file") {
      file = Upload{.content = part.content};
      if (!part.filename.empty()) file->filename = part.filename;
    } else if (part.name == "purpose") {
      purpose = part.content;
    } else if (!part.name.starts_with("expires_after")) {
      return refused("form", "unknown", "the form has the parts file, purpose and expires_after[...]");
    }
  }
  if (!file) return refused("file", "missing", "the form has no part named file");
  if (purpose != "batch") {
    return refused("purpose", "unsupported", "purpose must be batch: nothing else here reads files");
  }
  if (file->filename.size() > kFilenameBytesMax || !base::is_valid_utf8(file->filename)) {
    return refused("file", "range", "a file's name is UTF-8 of up to 255 bytes");
  }
  return *file;
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

base::Result<Page> page_of(std::vector<const Blob*> blobs, const net::Request& request, std::size_t limit_default) {
  const auto order = request.query_param("order").value_or("desc");
  if (order != "desc" && order != "asc") return refused("order", "type", "order is asc or desc");
  if (order == "desc") std::reverse(blobs.begin(), blobs.end());
  std::size_t limit = limit_default;
  if (const auto text = request.query_param("limit")) {
    const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (ec != std::errc() || end != text->data() + text->size() || limit < 1 || limit > kListMax) {
      return refused("limit", "range", "limit is between 1 and 10000");
    }
  }
  if (const auto after = request.query_param("after"); after && !after->empty()) {
    const auto it = std::ranges::find(blobs, *after, &Blob::id);
    if (it == blobs.end()) return refused("after", "unknown", "after is the id of the last one of a page");
    blobs.erase(blobs.begin(), it + 1);
  }
  const bool has_more = blobs.size() > limit;
  if (has_more) blobs.resize(limit);
  return Page{std::move(blobs), has_more};
}

std::string list_of(const Page& page, const std::vector<std::string>& objects) {
  const auto id = [&](bool first) {
    if (page.blobs.empty()) return std::string("null");
    return fmt::format(R"("{}")", first ? page.blobs.front()->id : page.blobs.back()->id);
  };
  return fmt::format(R"({{"object":"list","data":[{}],"first_id":{},"last_id":{},"has_more":{}}})",
                     fmt::join(objects, ","), id(true), id(false), page.has_more);
}

void Files::create(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto upload = upload_of(request);
  if (!upload) return refuse(context_, exchange, upload.error());
  const std::string id = "file-" + base::uuid_v4(*context_.entropy);
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  auto kept = context_.blobs->create(id,
                                     {.kind = std::string(kKind),
                                      .tenant_id = request.peer.principal.account,
                                      .created_unix_ms = now_ms,
                                      .expires_unix_ms = now_ms + context_.config->orchestratord.files.retention_ms,
                                      .body = encode_file({.filename = upload->filename, .purpose = "batch"})},
                                     upload->content);
  if (!kept) return refuse(context_, exchange, std::move(kept).error());
  exchange->respond(net::http::json_response(200, file_object(*context_.blobs->find(id))));
}

const Blob* Files::find(const net::Request& request, const net::ExchangePtr& exchange) const {
  const Blob* blob = context_.blobs->find(request.path_param("id"));
  if (blob != nullptr && blob->facts.kind == kKind && owns(request.peer.principal, blob->facts.tenant_id) &&
      !decode_file(*blob).hidden) {
    return blob;
  }
  refuse(context_, exchange,
         {ErrorCode::kNotFound, "no file has this id: it never was, was deleted, or has expired", {}});
  return nullptr;
}

void Files::list(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto purpose = request.query_param("purpose");
  std::vector<const Blob*> blobs = context_.blobs->list(kKind);
  std::erase_if(blobs, [&](const Blob* blob) {
    const FileFacts facts = decode_file(*blob);
    return facts.hidden || !owns(request.peer.principal, blob->facts.tenant_id) ||
           (purpose && facts.purpose != *purpose);
  });
  const auto page = page_of(std::move(blobs), request, kListMax);
  if (!page) return refuse(context_, exchange, page.error());
  std::vector<std::string> objects;
  for (const Blob* blob : page->blobs) objects.push_back(file_object(*blob));
  exchange->respond(net::http::json_response(200, list_of(*page, objects)));
}

void Files::show(const net::Request& request, const net::ExchangePtr& exchange) {
  if (const Blob* blob = find(request, exchange)) {
    exchange->respond(net::http::json_response(200, file_object(*blob)));
  }
}

void Files::content(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  exchange->start_stream(200, {{"Content-Type", "application/octet-stream"}});
  send(blob->id, 0, exchange);
}

// As much as the socket takes; a client that lets the rest lie holds no more than this.
void Files::send(const std::string& id, std::uint64_t offset, const net::ExchangePtr& exchange) {
  while (exchange->queued_bytes() < kQueuedBytesMax) {
    const auto bytes = context_.blobs->read(id, offset, kSendBytes);
    if (!bytes) return exchange->abort();
    if (bytes->empty()) return void(exchange->end());
    if (!exchange->write(*bytes)) return;
    offset += bytes->size();
  }
  exchange->on_drain(kSendBytes, [this, id, offset, exchange] {
    context_.files->post([this, id, offset, exchange] { send(id, offset, exchange); });
  });
}

void Files::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  if (Batches::reads(*context_.blobs, blob->id)) {
    return refuse(context_, exchange,
                  {ErrorCode::kConflict, "a batch reads this file; cancel the batch, or wait for its end", {}});
  }
  const std::string id = blob->id;
  if (auto erased = context_.blobs->erase(id); !erased) return refuse(context_, exchange, std::move(erased).error());
  const json::object deleted{{"id", id}, {"object", "file"}, {"deleted", true}};
  exchange->respond(net::http::json_response(200, json::serialize(deleted)));
}

}  // namespace llorch::orchestratord::http::openai
