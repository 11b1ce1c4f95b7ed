#pragma once
// Models by name: what orchestratord lists and fetches, and what a pool manager tells of a pull. Field tables: catalog.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/meta.h"

namespace llorch::wire {

// Another pool that has a model, and what opens it for this one model for a while.
struct PeerOffer {
  std::string pool_id;
  std::string endpoint;  // base URL of its manager
  std::string checksum;  // "sha256:<hex>", the digest of the model there
  std::string grant;     // bearer token
};

// POST /v2/models/pull of a pool manager; a repeated one joins the pull that runs.
struct PoolPullRequest {
  std::string source;            // hf:, https:, s3:, oci: or pypi:
  std::string checksum;          // "sha256:<hex>" of the model; empty: what the source says of itself
  std::vector<PeerOffer> peers;  // are asked before the source is
};

// GET /v2/models/{digest}/files of a pool manager: what the model consists of, for another pool.
struct ModelFile {
  std::string name;
  std::int64_t size_bytes = 0;
};
struct ModelFiles {
  std::string checksum;  // "sha256:<hex>"
  std::vector<ModelFile> files;
};

enum class PullState : std::uint8_t { kQueued, kLocating, kFetching, kFinishing, kDone, kFailed, kCancelled };

// GET /v2/models/pulls/{id} of a pool manager.
struct PullStatus {
  std::string pull_id;
  PullState state = PullState::kQueued;
  std::string source;  // once it is located: pinned, so that it means the same bytes for ever
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;  // 0: not known yet
  std::int64_t bytes_per_second = 0;
  std::optional<std::int64_t> eta_ms;
  // Of a pull that is done.
  std::string model_ref;  // file:/absolute/path
  std::string checksum;   // "sha256:<hex>", the model's digest
  std::int64_t size_bytes = 0;
  std::optional<std::string> peer_pool_id;  // that gave it; absent: it came from its source
  std::optional<std::string> signature;     // as CatalogModel::signature
  // Of one that failed.
  std::optional<std::string> error_code;
  std::optional<std::string> error_message;
};

enum class ModelLifecycle : std::uint8_t { kActive, kRetired };

enum class VerifyOutcome : std::uint8_t { kRunning, kPass, kFail, kNone };
// The last time that all of a model's bytes were read to compare them with its checksum.
struct ModelVerification {
  VerifyOutcome outcome = VerifyOutcome::kRunning;  // kNone: it could not be done, and nothing is known of the bytes
  std::int64_t unix_ms = 0;                         // of its end; of one that runs, of its begin
  std::string found;    // "sha256:<hex>" that the files have; empty: they were not read to the end
  std::string message;  // of all but a pass
};

// Who decided how a model's tool calls and thoughts are read.
enum class ChatFormatSource : std::uint8_t { kTemplate, kConfiguration, kDefault };
struct ChatFormatFacts {
  std::string name;  // of docs/guide/tool-calls.md
  ChatFormatSource source = ChatFormatSource::kDefault;
  std::string reason;
  std::vector<std::string> control_tokens;   // markers of the format that are one token of the model
  std::optional<std::string> without_tools;  // of requests that offer no tools, where that differs
};

// GET /v2/catalog/models and /v2/catalog/models/{id}
struct CatalogModel {
  std::string model_id;   // what a request may name
  std::string model_ref;  // empty while the model has not come
  ModelLifecycle lifecycle_state = ModelLifecycle::kActive;
  // Of names that were given at run time; the others are in models.aliases.
  std::optional<std::string> source;    // as pulled, without what follows a "?"
  std::optional<std::string> checksum;  // "sha256:<hex>"; a job whose model has another is refused
  std::optional<std::int64_t> size_bytes;
  std::optional<std::string> pool_id;  // that has the file
  std::optional<bool> pinned;
  std::optional<std::int64_t> used_unix_ms;  // when a job named it last
  // The file beside the model that its publisher signed it with, which is kept with it and not checked; "" if there is none.
  std::optional<std::string> signature;
  std::optional<ModelVerification> verification;  // the last one that was asked for
  std::optional<PullStatus> pull;                 // until it is done
  // With ?facts=true of a model that is here, one of the two: what a pool says of the file, or why none does.
  std::optional<ModelFacts> facts;
  std::optional<ChatFormatFacts> chat_format;  // with the facts
  std::optional<HealthReason> reason;
};
struct CatalogModelList {
  std::vector<CatalogModel> models;
};

// POST /v2/catalog/models
struct CreateCatalogModelRequest {
  std::optional<std::string> model_id;  // absent: the known model's name, or one made from the reference
  std::string model_ref;                // of a known model its name; else file:, hf:, https:, s3:, oci: or pypi:
  std::optional<std::string> checksum;
  std::optional<std::string> pool_id;  // where to; absent: the first healthy pool
};
// POST /v2/catalog/models/{id}/state
struct CatalogStateRequest {
  std::optional<ModelLifecycle> lifecycle_state;
  std::optional<bool> pinned;
};
// 202 of POST /v2/catalog/models/{id}/verify
struct VerifyReply {
  std::string model_id;
  std::string status = "started";
};
// 200 of DELETE /v2/catalog/models/{id} and of POST /v2/catalog/gc
struct CatalogRemoved {
  std::vector<std::string> removed;  // names
  std::int64_t bytes_freed = 0;
};
// POST /v2/catalog/gc
struct CatalogGcRequest {
  std::optional<std::int64_t> unused_ms;  // what nobody has named for so long goes
  std::optional<std::int64_t> bytes_max;  // then, the least lately named first, until the rest takes no more
};

// What is known of a model that can be pulled by name.
struct KnownModel {
  std::string model_id;
  std::string source;
  std::string checksum;  // "sha256:<hex>"; empty: its source's own is trusted
  std::int64_t size_bytes = 0;
  std::string parameters;  // "135M"
  std::string licence;
  std::string chat_template;  // "chatml", ...; empty: for completion
  std::string about;
  std::optional<bool> fits;  // in the largest device there is
};
// GET /v2/catalog/known
struct KnownModelList {
  std::vector<KnownModel> models;
};

// orchestratord's own file of names; see models/model_names.h.
struct NamedModel {
  std::string model_id;
  std::string source;         // as asked for
  std::string pinned_source;  // as the pool located it
  std::string wanted_checksum;
  std::string pool_id;
  std::string model_ref;  // empty: being pulled
  std::string checksum;
  std::int64_t size_bytes = 0;
  ModelLifecycle lifecycle_state = ModelLifecycle::kActive;
  bool pinned = false;
  bool watched = false;   // it lies in a directory that its pool watches, and goes when its file does
  std::string signature;  // as CatalogModel::signature
  std::optional<ModelVerification> verification;
  std::int64_t created_unix_ms = 0;
  std::int64_t used_unix_ms = 0;
};
struct NamedModels {
  std::int64_t version = 1;
  std::vector<NamedModel> models;
};

}  // namespace llorch::wire
