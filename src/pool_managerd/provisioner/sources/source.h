#pragma once
// References to models that are elsewhere. Pure.
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::pool_managerd::provisioner::sources {

enum class Scheme { kHub, kHttps, kS3, kOci, kPypi };

// hf:ORG/REPO[@REVISION][:FILE or :QUANTIZATION], also ::file=PATH; https://HOST/PATH; s3://BUCKET/KEY;
// oci:[REGISTRY/]REPOSITORY[:TAG or @DIGEST]; pypi:PROJECT[@VERSION][:MEMBER].
struct Source {
  Scheme scheme = Scheme::kHttps;
  std::string location;  // ORG/REPO; the URL; BUCKET/KEY; REGISTRY/REPOSITORY; PROJECT
  std::string revision;  // empty: the newest
  std::string selector;  // empty: chosen
};

// Errors: INVALID_PARAMS, with details.field "source".
base::Result<Source> parse_source(std::string_view text);

// The last part of `path` as a name of a file here: A-Z, a-z, 0-9, dot, underscore and dash, no dot at its begin, at most 128
// characters, never empty. No server names a file outside of the directory it is for.
std::string safe_file_name(std::string_view path);
// As safe_file_name(), but for what the engine reads below a Hugging Face directory: that keeps its directory (1_Pooling/config.json).
std::string safe_model_name(std::string_view path);

}  // namespace llorch::pool_managerd::provisioner::sources
