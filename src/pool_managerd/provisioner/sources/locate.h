#pragma once
// What a reference stands for now: files with their lengths and checksums, and a reference that means the same for ever.
#include <array>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "pool_managerd/provisioner/sources/source.h"
#include "pool_managerd/provisioner/web/web.h"

namespace llorch::pool_managerd::provisioner::sources {

// Of a document that a source describes itself with; parsed it takes several times that.
inline constexpr std::size_t kAnswerBytesMax = 4 << 20;

struct SourceSettings {
  std::string hub_url, hub_token;
  std::string pypi_url;
  std::string s3_url, s3_region, s3_key_id, s3_secret;  // key id empty: requests are not signed
};

struct RemoteFile {
  std::string name;         // a safe_model_name()
  web::WebRequest request;  // where it is
  std::string sha256;       // hex; empty: the source does not say
  std::optional<std::int64_t> size_bytes;
};
struct Artifact {
  std::string pinned;                  // reference
  std::vector<RemoteFile> files;       // of the model; at least one
  std::vector<RemoteFile> signatures;  // where one of the first file may be; none need be there
  bool is_of_peer = false;             // it lists all that its directory holds, whatever that is
  bool is_archive = false;             // the one file is a ZIP archive that holds the model
  std::string member;                  // its name in the archive, or its end; empty: the only .gguf file
};

// What the names of signatures end in, of minisign and of cosign and others.
inline constexpr std::array<std::string_view, 2> kSignatureEnds{".minisig", ".sig"};

struct LocateContext {
  web::Web& web;
  const SourceSettings& settings;
  const StopFlag& stop;
  base::Time now;
};

// Errors: those of Web; MODEL_NOT_FOUND, with the names there are; UNTRUSTED_ARTIFACT (an answer that makes no sense).
base::Result<Artifact> locate(const Source& source, const LocateContext& context);

base::Result<Artifact> locate_on_hub(const Source& source, const LocateContext& context);
base::Result<Artifact> locate_in_registry(const Source& source, const LocateContext& context);
base::Result<Artifact> locate_package(const Source& source, const LocateContext& context);
// Of a package's files the one with this checksum. Errors: those of Web; MODEL_NOT_FOUND; UNTRUSTED_ARTIFACT.
base::Result<RemoteFile> locate_wheel(const std::string& project, const std::string& sha256,
                                      const LocateContext& context);
// `settings.s3_url`/BUCKET/KEY, signed for a week (AWS Signature Version 4 in the query). Pure.
std::string s3_url(const Source& source, const SourceSettings& settings, std::int64_t unix_ms);

}  // namespace llorch::pool_managerd::provisioner::sources
