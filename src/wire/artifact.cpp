#include "wire/artifact.h"

#include "base/utf8.h"
#include "wire/field.h"
#include "wire/json_text_fields.h"

namespace llorch::wire {

template <>
struct EnumNames<ArtifactKind> {
  static constexpr auto names = std::array{std::pair{ArtifactKind::kPlan, std::string_view("plan")},
                                           std::pair{ArtifactKind::kSummary, std::string_view("summary")},
                                           std::pair{ArtifactKind::kDiff, std::string_view("diff")},
                                           std::pair{ArtifactKind::kTrace, std::string_view("trace")},
                                           std::pair{ArtifactKind::kTranscript, std::string_view("transcript")},
                                           std::pair{ArtifactKind::kLogs, std::string_view("logs")},
                                           std::pair{ArtifactKind::kOther, std::string_view("other")}};
};
template <>
struct Table<ArtifactDocument> {
  using S = ArtifactDocument;
  static Fields fields() {
    return {required("kind", &S::kind), required("content", &S::content, "Any JSON object.", {0, 4 << 20}),
            optional("tags", &S::tags, "Up to 32, each 1 to 128 bytes.", {0, 32}),
            optional("parent", &S::parent, "Id of an artefact of the caller's that this one was made of.", {64, 64}),
            optional("metadata", &S::metadata, "Any JSON object.", {0, 1 << 16})};
  }
  static base::Result<> validate(const S& a) {
    for (const std::string& tag : a.tags) {
      if (tag.empty() || tag.size() > 128) return field_error("tags", "length", "a tag has 1 to 128 bytes");
    }
    return {};
  }
};
template <>
struct Table<ArtifactReply> {
  using S = ArtifactReply;
  static Fields fields() {
    return {required("id", &S::id, "SHA-256 of the document, in hexadecimal digits."),
            required("digest", &S::digest, "sha256: and the id."),
            required("kind", &S::kind),
            required("tags", &S::tags),
            optional("parent", &S::parent),
            required("created_ms", &S::created_ms, "Unix time of the first request that brought it."),
            required("expires_ms", &S::expires_ms, "Unix time at which it is erased.")};
  }
};
template <>
struct Table<Artifact> {
  using S = Artifact;
  static Fields own() { return {required("content", &S::content), optional("metadata", &S::metadata)}; }
  static Fields fields() { return joined({Table<ArtifactReply>::fields(), own()}); }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(ArtifactDocument)
LLORCH_INSTANTIATE_WIRE(ArtifactReply)
LLORCH_INSTANTIATE_WIRE(Artifact)
