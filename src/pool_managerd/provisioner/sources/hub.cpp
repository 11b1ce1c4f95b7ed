// Repositories of the Hugging Face hub, and servers that speak as it does.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "engine/io/model_layout.h"
#include "pool_managerd/provisioner/sources/answer.h"
#include "pool_managerd/provisioner/sources/locate.h"

namespace llorch::pool_managerd::provisioner::sources {
namespace {

using base::ErrorCode;

constexpr int kPagesMax = 100;
constexpr std::size_t kFilesMax = 2000;
// Where a repository has several: small enough for most machines, large enough to be good.
constexpr std::array<std::string_view, 6> kPreferred{"q4_k_m", "q4_k_s", "q4_0", "q5_k_m", "q8_0", "f16"};

struct HubFile {
  std::string path;
  std::int64_t size_bytes = 0;
  std::string sha256;  // of large files
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

web::WebRequest request_for(const std::string& url, const LocateContext& context) {
  const std::string& token = context.settings.hub_token;
  return {.url = url, .authorization = token.empty() ? "" : "Bearer " + token};
}

// The URL behind rel="next" of a Link header; empty: this was the last page.
std::string next_page(std::string_view link) {
  const std::size_t rel = link.find("rel=\"next\"");
  if (rel == std::string_view::npos) return {};
  const std::size_t open = link.rfind('<', rel), close = link.find('>', open);
  if (open == std::string_view::npos || close == std::string_view::npos) return {};
  return std::string(link.substr(open + 1, close - open - 1));
}

base::Result<std::string> commit_of(const Source& source, const LocateContext& context) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}", context.settings.hub_url, source.location,
                                      source.revision.empty() ? "main" : source.revision);
  const auto reply = TRY(context.web.get_whole(request_for(url, context), kAnswerBytesMax, context.stop));
  const auto answer = TRY(parse_answer(reply.body));
  std::string commit = text_of(&answer, "sha");
  const bool is_hex = commit.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (commit.size() < 40 || commit.size() > 64 || !is_hex) {
    return base::fail(ErrorCode::kUntrustedArtifact, "the hub does not say which commit this is");
  }
  return commit;
}

base::Result<std::vector<HubFile>> files_at(const Source& source, const std::string& commit,
                                            const LocateContext& context) {
  std::vector<HubFile> out;
  std::string url =
      fmt::format("{}/api/models/{}/tree/{}?recursive=true", context.settings.hub_url, source.location, commit);
  const std::string origin = TRY(web::address_of(url)).origin;
  for (int page = 0; page < kPagesMax && !url.empty(); ++page) {
    const auto reply = TRY(context.web.get_whole(request_for(url, context), kAnswerBytesMax, context.stop));
    const auto tree = TRY(parse_answer(reply.body));
    if (!tree.is_array()) return base::fail(ErrorCode::kUntrustedArtifact, "the hub's list of files is none");
    for (const auto& item : tree.get_array()) {
      if (text_of(&item, "type") != "file" || out.size() >= kFilesMax) continue;
      out.push_back({.path = text_of(&item, "path"),
                     .size_bytes = size_of(item).value_or(0),
                     .sha256 = text_of(member(&item, "lfs"), "oid")});
      if (!is_sha256(out.back().sha256)) out.back().sha256.clear();
    }
    url = next_page(reply.head.header("link"));
    if (url.empty()) break;
    url = TRY(web::resolve_url(reply.url, url));
    if (TRY(web::address_of(url)).origin != origin) {
      return base::fail(ErrorCode::kUntrustedArtifact, "the hub's list of files goes on at another server");
    }
  }
  return out;
}

bool is_gguf(const HubFile& file) {
  const std::string name = lower(file.path);
  return name.ends_with(".gguf") && name.find("mmproj") == std::string::npos;
}

// STEM of STEM-00001-of-00003.gguf; empty: not a part of several.
std::string_view split_stem(std::string_view path) {
  constexpr std::string_view kShape = "-00001-of-00001.gguf";
  if (path.size() <= kShape.size()) return {};
  const std::string_view tail = path.substr(path.size() - kShape.size());
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(kShape[i])) != 0;
    if (is_digit ? std::isdigit(static_cast<unsigned char>(tail[i])) == 0 : tail[i] != kShape[i]) return {};
  }
  return path.substr(0, path.size() - kShape.size());
}

// The file itself, or all parts of its model.
std::vector<HubFile> with_its_parts(const HubFile& file, const std::vector<HubFile>& files) {
  const std::string_view stem = split_stem(file.path);
  if (stem.empty()) return {file};
  std::vector<HubFile> out;
  std::copy_if(files.begin(), files.end(), std::back_inserter(out),
               [&](const HubFile& other) { return split_stem(other.path) == stem; });
  std::sort(out.begin(), out.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return out;
}

tl::unexpected<base::Error> no_such_file(const std::string& what, const std::vector<HubFile>& files) {
  std::string names;
  for (const HubFile& file : files) {
    if (!is_gguf(file) || names.size() > 1000) continue;
    names += (names.empty() ? "" : ", ") + safe_file_name(file.path);
  }
  return base::fail(
      base::Error{ErrorCode::kModelNotFound,
                  fmt::format("the repository has no {}; it has: {}", what, names.empty() ? "no GGUF file" : names),
                  {}});
}

base::Result<std::vector<HubFile>> choose(const std::string& selector, const std::vector<HubFile>& files) {
  std::vector<HubFile> models;
  std::copy_if(files.begin(), files.end(), std::back_inserter(models), is_gguf);
  const auto first_with = [&](std::string_view mark) {
    return std::find_if(models.begin(), models.end(),
                        [&](const HubFile& file) { return lower(file.path).find(mark) != std::string::npos; });
  };
  if (!selector.empty()) {
    const auto exact = std::find_if(files.begin(), files.end(), [&](const HubFile& f) { return f.path == selector; });
    if (exact != files.end()) return with_its_parts(*exact, files);
    const auto like = first_with(lower(selector));
    if (like == models.end()) return no_such_file(selector, files);
    return with_its_parts(*like, files);
  }
  if (!models.empty()) {
    for (const std::string_view mark : kPreferred) {
      if (const auto it = first_with(mark); it != models.end()) return with_its_parts(*it, files);
    }
    return with_its_parts(models.front(), files);
  }
  std::vector<HubFile> directory;
  std::copy_if(files.begin(), files.end(), std::back_inserter(directory),
               [](const HubFile& file) { return engine::io::is_of_hf_model(file.path); });
  const auto is_config = [](const HubFile& file) { return file.path == engine::io::kHfConfigName; };
  const auto is_weights = [](const HubFile& file) {
    return file.path.ends_with(".safetensors") && file.path.find('/') == std::string::npos;
  };
  if (std::ranges::none_of(directory, is_config) || std::ranges::none_of(directory, is_weights)) {
    return no_such_file("model that can be run", files);
  }
  return directory;
}

}  // namespace

base::Result<Artifact> locate_on_hub(const Source& source, const LocateContext& context) {
  const std::string commit = TRY(commit_of(source, context));
  const auto all = TRY(files_at(source, commit, context));
  const auto files = TRY(choose(source.selector, all));
  Artifact out;
  const bool is_directory = !files.front().path.ends_with(".gguf");
  out.pinned = fmt::format("hf:{}@{}", source.location, commit);
  if (!is_directory) out.pinned += "::file=" + files.front().path;
  const auto remote = [&](const HubFile& file) -> RemoteFile {
    const std::string url =
        fmt::format("{}/{}/resolve/{}/{}", context.settings.hub_url, source.location, commit, file.path);
    return {.name = safe_model_name(file.path),
            .request = request_for(url, context),
            .sha256 = file.sha256,
            .size_bytes = file.size_bytes};
  };
  for (const HubFile& file : files) out.files.push_back(remote(file));
  for (const std::string_view end : kSignatureEnds) {
    const auto is_it = [&](const HubFile& file) { return file.path == files.front().path + std::string(end); };
    const auto signature = std::find_if(all.begin(), all.end(), is_it);
    if (signature != all.end()) out.signatures.push_back(remote(*signature));
  }
  return out;
}

}  // namespace llorch::pool_managerd::provisioner::sources
