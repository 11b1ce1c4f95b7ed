// The checked-in JSON Schemas of contracts/schema. LLORCH_UPDATE_GOLDEN=1 rewrites them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "base/file.h"
#include "config/config.h"
#include "wire/anthropic.h"
#include "wire/artifact.h"
#include "wire/catalog.h"
#include "wire/json.h"
#include "wire/llamacpp.h"
#include "wire/meta.h"
#include "wire/ollama.h"
#include "wire/openai.h"
#include "wire/placement_snapshot.h"
#include "wire/pool.h"
#include "wire/pool_control.h"
#include "wire/session.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::config {
namespace {

using namespace wire;  // NOLINT(google-build-using-namespace): all of it has a schema

namespace bj = boost::json;

const std::filesystem::path kDirectory = std::filesystem::path(LLORCH_SOURCE_DIR) / "contracts/schema";

struct SchemaFile {
  std::string name;
  std::string title;
  std::function<std::string()> make;
};

const std::vector<SchemaFile>& schema_files() {
  static const std::vector<SchemaFile> files{
      {"config", "llama-orch configuration", config_json_schema},
      {"submit_request", "POST /v2/tasks", json_schema<SubmitRequest>},
      {"chat_completion_request", "POST /v1/chat/completions", json_schema<ChatCompletionRequest>},
      {"messages_request", "POST /v1/messages", json_schema<MessagesRequest>},
      {"count_tokens_request", "POST /v1/messages/count_tokens", json_schema<CountTokensRequest>},
      {"create_message_batch_request", "POST /v1/messages/batches", json_schema<CreateMessageBatchRequest>},
      {"ollama_chat_request", "POST /api/chat", json_schema<OllamaChatRequest>},
      {"ollama_generate_request", "POST /api/generate", json_schema<OllamaGenerateRequest>},
      {"ollama_embed_request", "POST /api/embed", json_schema<OllamaEmbedRequest>},
      {"ollama_embeddings_request", "POST /api/embeddings", json_schema<OllamaEmbeddingsRequest>},
      {"ollama_pull_request", "POST /api/pull", json_schema<OllamaPullRequest>},
      {"ollama_copy_request", "POST /api/copy", json_schema<OllamaCopyRequest>},
      {"ollama_show_request", "POST /api/show and DELETE /api/delete", json_schema<OllamaShowRequest>},
      {"tokenize_request", "POST /tokenize", json_schema<TokenizeRequest>},
      {"detokenize_request", "POST /detokenize", json_schema<DetokenizeRequest>},
      {"apply_template_request", "POST /apply-template", json_schema<ApplyTemplateRequest>},
      {"llamacpp_completion_request", "POST /completion", json_schema<LlamaCppCompletionRequest>},
      {"infill_request", "POST /infill", json_schema<InfillRequest>},
      {"llamacpp_embedding_request", "POST /embedding", json_schema<LlamaCppEmbeddingRequest>},
      {"rerank_request", "POST /rerank", json_schema<RerankRequest>},
      {"responses_request", "POST /v1/responses", json_schema<ResponsesRequest>},
      {"create_batch_request", "POST /v1/batches", json_schema<CreateBatchRequest>},
      {"create_conversation_request", "POST /v1/conversations", json_schema<CreateConversationRequest>},
      {"update_conversation_request", "POST /v1/conversations/{id}", json_schema<UpdateConversationRequest>},
      {"create_items_request", "POST /v1/conversations/{id}/items", json_schema<CreateItemsRequest>},
      {"embeddings_request", "POST /v1/embeddings", json_schema<EmbeddingsRequest>},
      {"text_completion_request", "POST /v1/completions", json_schema<TextCompletionRequest>},
      {"submit_reply", "202 of POST /v2/tasks", json_schema<SubmitReply>},
      {"task_result", "200 of POST /v2/tasks?wait=true", json_schema<TaskResult>},
      {"job_view", "GET /v2/tasks/{id}", json_schema<JobView>},
      {"job_list", "GET /v2/tasks", json_schema<JobList>},
      {"cancel_reply", "answer of a cancel", json_schema<CancelReply>},
      {"error_body", "inner object of every error body", json_schema<ErrorBody>},
      {"receipt", "what a result can be checked against", json_schema<Receipt>},
      {"event_queued", "SSE event queued", json_schema<QueuedEvent>},
      {"event_started", "SSE event started", json_schema<StartedEvent>},
      {"event_token", "SSE event token", json_schema<TokenEvent>},
      {"event_metrics", "SSE event metrics", json_schema<MetricsEvent>},
      {"event_end", "SSE event end", json_schema<EndEvent>},
      {"pool_state", "GET /v2/state of a pool manager", json_schema<PoolState>},
      {"start_worker_request", "POST /v2/workers/start", json_schema<StartWorkerRequest>},
      {"ready_callback", "POST /v2/internal/workers/ready, worker to pool manager", json_schema<ReadyCallback>},
      {"load_progress", "POST /v2/internal/workers/progress, worker to pool manager", json_schema<LoadProgress>},
      {"worker_ready", "POST /v2/internal/workers/ready, pool manager to orchestratord", json_schema<WorkerReady>},
      {"worker_failed", "POST /v2/internal/workers/failed", json_schema<WorkerFailed>},
      {"model_facts", "GET /v2/models/describe", json_schema<ModelFacts>},
      {"execute_request", "POST /execute of a worker", json_schema<ExecuteRequest>},
      {"worker_health", "GET /health of a worker", json_schema<WorkerHealth>},
      {"pool_credential_reply", "201 of POST /v2/pools/{id}/credential", json_schema<PoolCredentialReply>},
      {"drain_request", "POST /v2/pools/{id}/drain", json_schema<DrainRequest>},
      {"reload_request", "POST /v2/pools/{id}/reload", json_schema<ReloadRequest>},
      {"purge_request", "POST /v2/pools/{id}/purge", json_schema<PurgeRequest>},
      {"pool_control_reply", "202 of drain, reload and purge of a pool", json_schema<PoolControlReply>},
      {"pool_health", "GET /v2/pools/{id}/health", json_schema<PoolHealthReport>},
      {"pool_list", "GET /v2/pools", json_schema<PoolList>},
      {"cache_cleared", "200 of POST /v2/cache/clear", json_schema<CacheCleared>},
      {"register_reply", "200 of POST /v2/pools/register", json_schema<RegisterReply>},
      {"heartbeat_reply", "200 of POST /v2/pools/{id}/heartbeat", json_schema<HeartbeatReply>},
      {"health_reply", "GET /v2/health", json_schema<HealthReply>},
      {"placement_snapshot", "GET /v2/debug/snapshot", json_schema<PlacementSnapshot>},
      {"job_preview", "200 of POST /v2/tasks/preview", json_schema<JobPreview>},
      {"version_reply", "GET /v2/meta/version", json_schema<VersionReply>},
      {"capabilities_reply", "GET /v2/meta/capabilities", json_schema<CapabilitiesReply>},
      {"create_session_request", "POST /v2/sessions", json_schema<CreateSessionRequest>},
      {"session_view", "GET /v2/sessions/{id}", json_schema<SessionView>},
      {"session_list", "GET /v2/sessions", json_schema<SessionList>},
      {"session_deleted", "200 of DELETE /v2/sessions/{id}", json_schema<SessionDeleted>},
      {"artifact_document", "POST /v2/artifacts", json_schema<ArtifactDocument>},
      {"artifact_reply", "201 of POST /v2/artifacts", json_schema<ArtifactReply>},
      {"artifact", "GET /v2/artifacts/{id}", json_schema<Artifact>},
      {"catalog_models", "GET /v2/catalog/models", json_schema<CatalogModelList>},
      {"catalog_model", "GET /v2/catalog/models/{id}", json_schema<CatalogModel>},
      {"create_catalog_model_request", "POST /v2/catalog/models", json_schema<CreateCatalogModelRequest>},
      {"catalog_state_request", "POST /v2/catalog/models/{id}/state", json_schema<CatalogStateRequest>},
      {"catalog_gc_request", "POST /v2/catalog/gc", json_schema<CatalogGcRequest>},
      {"verify_reply", "202 of POST /v2/catalog/models/{id}/verify", json_schema<VerifyReply>},
      {"catalog_removed", "200 of DELETE /v2/catalog/models/{id} and POST /v2/catalog/gc", json_schema<CatalogRemoved>},
      {"known_models", "GET /v2/catalog/known", json_schema<KnownModelList>},
      {"pool_pull_request", "POST /v2/models/pull of a pool manager", json_schema<PoolPullRequest>},
      {"pull_status", "GET /v2/models/pulls/{id} of a pool manager", json_schema<PullStatus>},
      {"model_files", "GET /v2/models/{digest}/files of a pool manager", json_schema<ModelFiles>},
  };
  return files;
}

// One member or element per line, so that a change of one field is a change of its lines.
void print(const bj::value& value, std::size_t indent, std::string& out) {
  const std::string margin(indent + 2, ' ');
  if (value.is_object() && !value.get_object().empty()) {
    out += "{\n";
    for (const auto& [key, item] : value.get_object()) {
      out += margin + bj::serialize(bj::value(key)) + ": ";
      print(item, indent + 2, out);
      out += ",\n";
    }
    out.replace(out.size() - 2, 2, "\n" + std::string(indent, ' ') + "}");
  } else if (value.is_array() && !value.get_array().empty() && !value.get_array()[0].is_string()) {
    out += "[\n";
    for (const bj::value& item : value.get_array()) {
      out += margin;
      print(item, indent + 2, out);
      out += ",\n";
    }
    out.replace(out.size() - 2, 2, "\n" + std::string(indent, ' ') + "]");
  } else if (value.is_double()) {
    out += fmt::format("{}", value.get_double());
  } else {
    out += bj::serialize(value);
  }
}

std::string document(const SchemaFile& file) {
  bj::object out{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", file.title}};
  bj::value schema = bj::parse(file.make());
  for (auto& [key, value] : schema.as_object()) out[key] = std::move(value);
  std::string text;
  print(out, 0, text);
  return text + "\n";
}

// OC-CONFIG-6010: the schemas users validate against are the field tables that the programs read with.
TEST(SchemaFiles, AreWhatTheFieldTablesSay) {
  const bool update = std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr;
  std::set<std::string> expected;
  for (const SchemaFile& file : schema_files()) {
    const std::filesystem::path path = kDirectory / (file.name + ".json");
    expected.insert(path.filename());
    const std::string now = document(file);
    if (update) {
      ASSERT_TRUE(base::write_file_atomic(path, now, 0644).has_value()) << path;
    }
    EXPECT_EQ(base::read_file(path, 1 << 20).value_or(""), now)
        << path << " differs; LLORCH_UPDATE_GOLDEN=1 ctest -R config_test rewrites it, then run tools/gen_config_docs";
  }
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_TRUE(expected.contains(entry.path().filename())) << entry.path() << " is no schema of this test";
  }
}

}  // namespace
}  // namespace llorch::config
