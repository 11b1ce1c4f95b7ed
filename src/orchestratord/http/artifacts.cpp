#include "orchestratord/http/artifacts.h"

#include <utility>

#include "base/sha256.h"
#include "orchestratord/http/chat/parsing.h"
#include "wire/artifact.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using base::ErrorCode;
using store::blobs::Blob;

// Two callers that post the same document have one each, and learn nothing of each other's.
std::string blob_id(const net::http::Principal& caller, const std::string& id) {
  base::Sha256 hash;
  hash.update(caller.account).update("\n").update(id);
  return "artifact-" + base::to_hex(hash.digest());
}

base::Error no_such_artifact() {
  return {ErrorCode::kNotFound, "no artifact has this id: it never was, was deleted, or has expired", {}};
}

wire::ArtifactReply reply_of(const std::string& id, const wire::ArtifactDocument& document, const Blob& blob) {
  return {.id = id,
          .digest = "sha256:" + id,
          .kind = document.kind,
          .tags = document.tags,
          .parent = document.parent,
          .created_ms = blob.facts.created_unix_ms,
          .expires_ms = blob.facts.expires_unix_ms.value_or(0)};
}

}  // namespace

const Blob* Artifacts::find(const net::http::Principal& caller, const std::string& id) const {
  const Blob* blob = context_.blobs->find(blob_id(caller, id));
  return blob != nullptr && blob->facts.kind == kKind ? blob : nullptr;
}

void Artifacts::create(const net::Request& request, const net::ExchangePtr& exchange) {
  if (const auto valid = chat::check_utf8(request.body); !valid) return refuse(context_, exchange, valid.error());
  const auto document = wire::decode<wire::ArtifactDocument>(request.body, wire::UnknownKeys::kRefuse);
  if (!document) return refuse(context_, exchange, document.error());
  const net::http::Principal& caller = request.peer.principal;
  if (document->parent && find(caller, *document->parent) == nullptr) {
    return refuse(context_, exchange,
                  base::Error{ErrorCode::kInvalidParams, "parent is the id of an artifact that is kept", {}}
                      .with("field", std::string("parent"))
                      .with("reason", std::string("unknown")));
  }
  const std::string text = wire::encode(*document);
  const std::string id = base::to_hex(base::sha256(text));
  const bool was_kept = find(caller, id) != nullptr;
  if (!was_kept) {
    const std::int64_t now_ms = context_.clock->now().unix_ms;
    auto kept = context_.blobs->create(blob_id(caller, id),
                                       {.kind = std::string(kKind),
                                        .tenant_id = caller.account,
                                        .created_unix_ms = now_ms,
                                        .expires_unix_ms = now_ms + context_.config->orchestratord.files.retention_ms,
                                        .body = {}},
                                       text);
    if (!kept) return refuse(context_, exchange, std::move(kept).error());
  }
  const auto reply = reply_of(id, *document, *find(caller, id));
  exchange->respond(net::http::json_response(was_kept ? 200 : 201, wire::encode(reply)));
}

void Artifacts::show(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string& id = request.path_param("id");
  const Blob* blob = find(request.peer.principal, id);
  if (blob == nullptr) return refuse(context_, exchange, no_such_artifact());
  const auto text = context_.blobs->read(blob->id, 0, blob->content_bytes);
  if (!text) return refuse(context_, exchange, text.error());
  auto document = wire::decode<wire::ArtifactDocument>(*text);
  if (!document) return refuse(context_, exchange, document.error());
  wire::Artifact out;
  static_cast<wire::ArtifactReply&>(out) = reply_of(id, *document, *blob);
  out.content = std::move(document->content);
  out.metadata = std::move(document->metadata);
  exchange->respond(net::http::json_response(200, wire::encode(out)));
}

void Artifacts::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request.peer.principal, request.path_param("id"));
  if (blob == nullptr) return refuse(context_, exchange, no_such_artifact());
  if (auto erased = context_.blobs->erase(std::string(blob->id)); !erased) {
    return refuse(context_, exchange, std::move(erased).error());
  }
  exchange->respond({204, {}, {}});
}

}  // namespace llorch::orchestratord::http
