#pragma once
// Documents that a client asks to have kept, under the hash of what they say. Field tables: artifact.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/task.h"

namespace llorch::wire {

enum class ArtifactKind : std::uint8_t { kPlan, kSummary, kDiff, kTrace, kTranscript, kLogs, kOther };

// POST /v2/artifacts. What it says, all of it, decides its id.
struct ArtifactDocument {
  ArtifactKind kind = ArtifactKind::kOther;
  JsonObject content;
  std::vector<std::string> tags;
  std::optional<std::string> parent;  // id of the artefact that this one was made of
  std::optional<JsonObject> metadata;
};

// What is said of an artefact beside its document: the answer of POST /v2/artifacts.
struct ArtifactReply {
  std::string id;      // hex SHA-256 of the document
  std::string digest;  // "sha256:" and the id
  ArtifactKind kind = ArtifactKind::kOther;
  std::vector<std::string> tags;
  std::optional<std::string> parent;
  std::int64_t created_ms = 0;
  std::int64_t expires_ms = 0;
};
// GET /v2/artifacts/{id}
struct Artifact : ArtifactReply {
  JsonObject content;
  std::optional<JsonObject> metadata;
};

}  // namespace llorch::wire
